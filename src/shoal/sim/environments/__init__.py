"""Environments of tasks in simulated worlds: who needs them, and the promises."""
