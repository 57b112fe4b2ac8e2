"""Owners, their programs, workers that are there for a time, and the promises."""
