"""Admitting new nodes to a shoal, and joining one."""
