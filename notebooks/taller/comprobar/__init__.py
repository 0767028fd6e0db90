"""Si lo escrito da lo que debe: una comprobación por pieza, y las ideas que la tabla conoce."""
