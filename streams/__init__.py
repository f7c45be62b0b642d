"""Frames → the world. No torch, no vLLM at import time."""
