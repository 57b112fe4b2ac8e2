"""The machines that decide: facts in, effects out, no I/O and no clock.

A machine takes one event at a time through `handle(event, now)` and returns the
effects to perform, in order. `now` is in seconds of the node's own monotonic clock.
"""
