"""Owners who come and go, programs that take memory, and the promises."""
