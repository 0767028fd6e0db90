"""Exports to other programs, and imports from them."""
