"""How stages reach each other: payloads and keys/values, within a process or between two."""
