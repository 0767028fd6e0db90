"""What evaluate.py measures: the model's text, and the loss of counting."""
