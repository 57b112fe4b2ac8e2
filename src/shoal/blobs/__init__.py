"""Content-addressed blobs: trees of files are packed, stored and unpacked.

`trees` and `partials` only decide: they do no input or output and have no clock. The
other modules touch disks and block: call them in a thread. Names of blobs are in
`shoal.protocol.blob_hashing`. `docs/data.md` has the whole picture.
"""
