"""Request → frames. No sockets, no dialects."""
