"""A training run: how it begins, and what it leaves in its folder."""
