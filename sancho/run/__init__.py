"""A run: its plan, state, batches, reports, folder, metrics and curve."""
