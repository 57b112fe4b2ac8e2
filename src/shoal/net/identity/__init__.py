"""Keys, ids and certificates of nodes."""
