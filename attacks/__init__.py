"""Attacks on real nodes, each with the promise that it tries to break.

Run: make attack, or: python -m attacks [--only TEXT] [--json]

A hostile member, a hostile worker, a hostile task and a hostile stranger try what they
can. Whether an attack succeeded is seen from outside: by a file that must not be there,
by `/proc`, by what a socket received; never by the word of the node that was attacked.
"""
