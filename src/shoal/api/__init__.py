"""The API of a node: its methods, clients, servers and service.

`shoal.proto` defines the methods and messages; `docs/api.md` explains how to use them.
Commands on the node's machine call it over a Unix socket, everybody else over gRPC.
"""
