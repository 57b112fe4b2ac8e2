"""Ended jobs and drained workers of simulated worlds, and the promises."""
