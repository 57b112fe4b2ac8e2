"""Bytes named by their hash: what they are called, kept, packed and fetched.

`hashing`, `trees` and `transfer` only decide: they do no input or output and have no
clock. `store`, `packing`, `unpacking` and `beneath` touch disks, and block: call
them in a thread. `docs/data.md` has the whole picture.
"""
