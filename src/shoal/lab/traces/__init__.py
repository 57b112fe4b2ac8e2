"""Workloads: readers of public trace formats, and generators."""
