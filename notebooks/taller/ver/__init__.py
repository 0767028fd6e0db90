"""Lo que se ve en los capítulos: figuras, láminas y lo que hay dentro de un modelo."""
