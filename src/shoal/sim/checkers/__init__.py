"""What shoal promises, checked against the truth of a simulated world.

Checkers read processes, disks, answers to clients and the messages that pass by. The
machines' own opinion counts only where the promise is about that opinion.
"""
