"""Lo que se dice de lo que no pasa, en español: qué, dónde y, si se pide, el arreglo."""
