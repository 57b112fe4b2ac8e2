"""Texts from outside: what may be in them, and how long they may be."""
