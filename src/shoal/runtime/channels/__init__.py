"""Channels on a live node: who uses each end, and what serves tasks."""
