"""Formatting for the terminal."""
