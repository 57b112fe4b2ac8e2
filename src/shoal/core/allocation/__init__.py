"""Machines that an engine lends for a time: how many are asked for, and when."""
