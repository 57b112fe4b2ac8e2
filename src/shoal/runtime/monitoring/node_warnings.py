"""Warnings that a node's user should see before something goes wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from shoal.net.identity.locked_key import BEGIN, is_locked
from shoal.runtime.discovery.listen_addresses import only_here

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.runtime.node import Node

DAY_S: Final = 86_400.0
SOON_S: Final = 30 * DAY_S
ROOT_KEY: Final = (
    "the root key of the shoal lies here unlocked, on a machine that lends to others: "
    "`shoal key lock` locks it"
)


def cautions(node: Node, addresses: Iterable[str]) -> list[str]:
    """Return the current warnings of a node, one sentence each."""
    found = [_grant_ends(node)]
    lends = "worker" in node.settings.roles and not only_here(tuple(addresses))
    if lends and _is_open(node):
        found.append(ROOT_KEY)
    if node.audit.trouble:
        found.append(f"the audit log cannot be written: {node.audit.trouble}")
    if node.granting.trouble:
        found.append(f"the new grant could not be kept: {node.granting.trouble}")
    return [text for text in found if text]


def _grant_ends(node: Node) -> str:
    """Warn that the node's grant expires soon and was not renewed."""
    left_s = node.membership.grant.expires_wall_s - time.time()
    trouble = node.peer.membership.renewal.trouble
    if left_s > SOON_S or not trouble:
        return ""
    days = f"in {left_s / DAY_S:.1f} days" if left_s > 0 else "now"
    return f"the grant of this node ends {days}, and could not be renewed: {trouble}"


def _is_open(node: Node) -> bool:
    try:
        with node.home.root_key.open("rb") as file:
            return not is_locked(file.read(len(BEGIN)))
    except OSError:
        return False
