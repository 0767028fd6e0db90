"""Texts: found, cleaned, and turned into a corpus in memory."""
