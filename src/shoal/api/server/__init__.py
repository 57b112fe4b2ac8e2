"""Servers of the API: gRPC, local sockets, TLS and HTTP."""
