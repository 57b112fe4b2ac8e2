"""Every limit on what a peer may send, each with a name."""

from typing import Final

DELEGATIONS_MAX: Final = 3
"""Admins between the root and a node: each shows its own grant inside the next."""
