"""Wren, the embedded voice."""
