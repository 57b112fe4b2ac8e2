"""API calls between the nodes of one owner."""
