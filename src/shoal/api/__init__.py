"""The API of a node: what its clients ask and how it answers, over gRPC.

`shoal.proto` says what there is; `docs/api.md` says how to use it.
"""
