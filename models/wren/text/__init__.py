"""English as written → phonemes."""
