"""The service behind the API: how a node answers each call."""
