"""Content-addressed blobs: naming, storing, packing and fetching them.

`hashing`, `trees` and `transfer` only decide: they do no input or output and have no
clock. `store`, `packing`, `unpacking` and `beneath` touch disks, and block: call
them in a thread. `docs/data.md` has the whole picture.
"""
