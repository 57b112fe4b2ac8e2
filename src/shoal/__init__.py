"""Pool the machines people have and run training, inference and batch jobs on them.

The packages form layers; CONTRIBUTING.md lists them. Importing `shoal` alone loads
nothing else, so that every command starts at once.
"""

__version__ = "0.1.0"
