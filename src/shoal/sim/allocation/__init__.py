"""Allocations in virtual time: an engine with a queue, and the promises."""
