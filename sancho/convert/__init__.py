"""Exports to other programs."""
