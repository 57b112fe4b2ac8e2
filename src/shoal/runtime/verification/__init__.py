"""Comparing results of verified tasks."""
