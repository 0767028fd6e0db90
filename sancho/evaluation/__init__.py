"""What evaluate.py says of a model."""
