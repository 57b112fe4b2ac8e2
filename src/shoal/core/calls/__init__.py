"""Calls of functions: which goes to which interpreter, and how they travel."""
