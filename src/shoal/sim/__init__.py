"""Simulate a whole shoal in virtual time, with faults, from one seed."""
