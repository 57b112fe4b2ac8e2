"""Calls of functions in simulated worlds: their client, and the promises."""
