"""Training of Wren, the embedded voice: teacher data → codec → talker → exported weights."""
