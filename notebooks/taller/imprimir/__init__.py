"""Lo que se imprime para una clase."""
