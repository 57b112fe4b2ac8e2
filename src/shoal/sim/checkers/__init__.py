"""Check shoal's promises against the truth of a simulated world.

Checkers read processes, disks, answers to clients and messages in transit. They use
a machine's own view only where the promise is about that view.
"""
