"""The token of a node: a secret, and the fingerprint of the node it is for.

The two parts are separated by a full stop. A client on another machine checks the
fingerprint, so that it shows the secret to that node only.
"""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Final, final

from shoal.api import node_file
from shoal.errors import UsageError
from shoal.net.joining.invitations import key_print
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId
    from shoal.runtime.home import Home

SECRET_BYTES: Final = 24


@final
class LiveToken:
    """The current token of a running node."""

    def __init__(self, value: str) -> None:
        self.value = value
        self._told: list[Callable[[str], None]] = []

    def on_renewed(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with each new token."""
        self._told.append(tell)

    def renew(self, value: str) -> None:
        """Replace the token and notify all subscribers."""
        self.value = value
        for tell in self._told:
            tell(value)


def load_or_make(home: Home, node: NodeId) -> str:
    """Return the token of a home; make one, or complete one of an old version."""
    known = node_file.read_token(home)
    secret = secret_of(known) or secrets.token_urlsafe(SECRET_BYTES)
    token = f"{secret}.{print_of(node)}"
    if token != known:
        write_private(node_file.token_file(home), token.encode() + b"\n")
    return token


def rotate(home: Home) -> str:
    """Replace the token of a home by a new one for the same node; return it."""
    known = node_file.read_token(home)
    if not pin_of(known):
        raise UsageError(
            f"there is no token in {home.path}",
            because="no node was ever started there, or by an older shoal only",
            hint="`shoal up` starts one",
        )
    token = f"{secrets.token_urlsafe(SECRET_BYTES)}.{pin_of(known)}"
    write_private(node_file.token_file(home), token.encode() + b"\n")
    return token


def secret_of(token: str) -> str:
    """Return the secret part of a token."""
    return token.partition(".")[0]


def pin_of(token: str) -> str:
    """Return the key fingerprint in a token; empty if it has none."""
    return token.partition(".")[2]


def print_of(node: NodeId) -> str:
    """Return a node's key fingerprint as it is written in tokens."""
    return base64.urlsafe_b64encode(key_print(node)).decode().rstrip("=")
