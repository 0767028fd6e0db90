"""Ways out of and into the house: what other programs read, made from a checkpoint."""
