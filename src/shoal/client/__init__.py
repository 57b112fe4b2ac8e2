"""The Python API: clients, futures, executors and tasks. `docs/guides/python.md`.

`import shoal` offers all of it by name and loads it when it is first used.
"""
