"""The token of a node: a secret, and whom it may be shown to.

After a full stop, the token has the print of the node's key: a client on another
machine shows the secret to that node, and to nobody who answers in its place.
"""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Final

from shoal.api import whereabouts
from shoal.errors import UsageError
from shoal.net.invitations import key_print
from shoal.runtime.membership import write_private

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.runtime.home import Home

SECRET_BYTES: Final = 24


def load_or_make(home: Home, node: NodeId) -> str:
    """Return the token of the node in this home; one of an older shoal is completed."""
    known = whereabouts.read_token(home)
    secret = secret_of(known) or secrets.token_urlsafe(SECRET_BYTES)
    token = f"{secret}.{print_of(node)}"
    if token != known:
        write_private(whereabouts.token_file(home), token.encode() + b"\n")
    return token


def rotate(home: Home) -> str:
    """Replace the token in this home by a new one for the same node; return it."""
    known = whereabouts.read_token(home)
    if not pin_of(known):
        raise UsageError(
            f"there is no token in {home.path}",
            because="no node was ever started there, or by an older shoal only",
            hint="`shoal up` starts one",
        )
    token = f"{secrets.token_urlsafe(SECRET_BYTES)}.{pin_of(known)}"
    write_private(whereabouts.token_file(home), token.encode() + b"\n")
    return token


def secret_of(token: str) -> str:
    """Return the part of a token that is secret."""
    return token.partition(".")[0]


def pin_of(token: str) -> str:
    """Return the print of the key of the node that a token is for; empty if none."""
    return token.partition(".")[2]


def print_of(node: NodeId) -> str:
    """Return the print of the key of a node, as tokens have it."""
    return base64.urlsafe_b64encode(key_print(node)).decode().rstrip("=")
