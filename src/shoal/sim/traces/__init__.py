"""Workloads of the world: readers of their formats, and generators for want of them."""
