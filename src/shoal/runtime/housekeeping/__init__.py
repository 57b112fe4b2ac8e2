"""Ended jobs: their files measured and deleted, and what they name called."""
