"""Newcomers in simulated worlds: how they join, and the promises."""
