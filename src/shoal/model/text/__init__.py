"""Texts: what may be in those from outside, and the words of shortages."""
