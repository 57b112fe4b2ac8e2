"""Placement policies: which of the workers that fit a task suits it best."""
