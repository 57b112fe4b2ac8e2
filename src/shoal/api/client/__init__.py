"""Clients of the API, for commands and programs."""
