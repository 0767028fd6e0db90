"""What evaluate.py says of a model, and what can be seen inside it."""
