"""Channels to tasks in simulated worlds: their users, and the promises."""
