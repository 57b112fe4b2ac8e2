"""Composite learning: programs that train one model on many machines.

They run as tasks of a job and know nothing of nodes: they talk to each other through
an `exchange`, and to the worker by `shoal.log`. `rounds` is a machine like those of
`core`: it takes one fact and returns what to do, and has neither clock nor chance.
"""
