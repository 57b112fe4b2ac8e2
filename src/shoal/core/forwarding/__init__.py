"""API calls that one node makes at another of the same owner."""
