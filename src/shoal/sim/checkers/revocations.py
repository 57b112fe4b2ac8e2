"""Whom each node knows to be revoked: several promises are about such a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.core.durability.journal import Entry, Revoked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.model.ids import NodeId
    from shoal.sim.agenda import Agenda
    from shoal.sim.node.host import SimHost


@final
class KnownRevocations:
    """Notes since when nodes have revocations on disk."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._since: dict[tuple[NodeId, NodeId], float] = {}  # by (node, other)

    def note(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note revocations that a node has on disk."""
        for entry in entries:
            if isinstance(entry, Revoked):
                key = (host.id, entry.revocation.node)
                self._since.setdefault(key, self._agenda.now)

    def knows(self, host: SimHost, node: NodeId) -> bool:
        """Whether a node knew before this moment that another is revoked.

        What it decided earlier is sent by the time the record is safe.
        """
        since = self._since.get((host.id, node))
        return since is not None and self._agenda.now > since
