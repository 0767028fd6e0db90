"""En qué línea está el error, y qué tropiezos con Python no dejan comprobar lo escrito."""
