"""Store a node's journal on its own disk.

The store handles bytes only: the code that opens a journal encodes and decodes its
entries.
"""
