"""Limit the memory, CPU, processes and disk space of tasks."""
