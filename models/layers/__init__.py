"""Blocks that models share."""
