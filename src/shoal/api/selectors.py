"""Resolves how users name nodes: by id, id prefix, or petname."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.errors import NotFoundError, UsageError
from shoal.model.ids import NodeId
from shoal.net.identity.identity import public_key
from shoal.net.identity.petname import petname

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.node import Node

ID_BEGINS: Final = "12D3KooW"


def known_nodes(node: Node, network: NodeNetwork) -> list[NodeId]:
    """Return all other known nodes, linked ones first."""
    known = dict.fromkeys(network.links.connected)
    if node.scheduler is not None:
        known.update(dict.fromkeys(node.scheduler.views.table.nodes()))
    known.update((each, None) for each, _ in network.acquaintances)
    known.pop(node.id, None)
    return list(known)


def node_called(selector: str, known: Iterable[NodeId]) -> NodeId:
    """Return the node a selector means: a known one, or any by its full id."""
    known = list(known)
    found = [node for node in known if selector in (node, petname(node))]
    if not found and selector.startswith(ID_BEGINS):
        found = [node for node in known if node.startswith(selector)]
    if len(found) > 1:
        raise UsageError(
            f"'{selector}' could be {len(found)} nodes",
            because="they share the name, or the beginning of their ids",
            hint="`shoal nodes --json` shows whole ids",
        )
    if not found and not selector.startswith(ID_BEGINS):
        raise NotFoundError(
            f"there is no node '{selector}'",
            because="none that is known here has this name",
            hint="`shoal nodes` lists them; one that has left goes by its whole id",
        )
    if not found:
        public_key(NodeId(selector))  # Raises if it is not a node id.
    return found[0] if found else NodeId(selector)
