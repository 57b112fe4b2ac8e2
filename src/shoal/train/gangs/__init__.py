"""Synchronous recipes, whose ranks talk at every step: DDP and pipeline."""
