"""The Python API: clients, futures, executors and tasks; see `docs/guides/python.md`.

`import shoal` exports every public name and imports its module on first use.
"""
