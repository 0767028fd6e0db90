"""sancho-mini: a compact character-level GPT that learns Spanish from Don Quijote."""
