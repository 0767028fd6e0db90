"""What the implementations of the model share: weights, n-grams, dropout masks and the proof."""
