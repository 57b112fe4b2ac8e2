"""The shoal that a node belongs to: its grant, keys and revocations."""
