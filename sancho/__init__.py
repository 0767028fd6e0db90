"""sancho-mini: a compact character-level GPT that learns Spanish from Don Quijote."""

__version__ = "3.0.0"
