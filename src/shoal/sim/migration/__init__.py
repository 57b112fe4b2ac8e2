"""Gangs that move to better places in simulated worlds, and the promises."""
