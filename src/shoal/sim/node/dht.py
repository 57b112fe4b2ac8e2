"""Simulate a distributed hash table that is slow, stale and sometimes wrong."""

from __future__ import annotations

from random import Random
from typing import Final, final

from shoal.core.events import LookedUp, LookUp
from shoal.model.ids import NodeId
from shoal.protocol.messages import PeerAddress
from shoal.sim.agenda import Agenda
from shoal.sim.network import Port

PUT_S: Final = (0.05, 1.0)
GET_S: Final = (0.05, 1.5)
NOBODY: Final = NodeId("nobody")


@final
class SimDht:
    """Providers of keys; records outlive their makers.

    `errors` is the chance that an answer lacks a record, and that it names a node that
    never provided the key or does not exist.
    """

    def __init__(self, agenda: Agenda, rng: Random) -> None:
        self.errors = 0.0
        self.strangers: list[NodeId] = [NOBODY]
        self._agenda = agenda
        self._rng = rng
        self._providers: dict[str, dict[NodeId, None]] = {}
        self._everybody: dict[NodeId, None] = {}

    def provide(self, node: NodeId, keys: tuple[str, ...]) -> None:
        """Record, after a delay, that `node` provides these keys."""
        self._everybody[node] = None
        self._agenda.after(self._rng.uniform(*PUT_S), self._store, node, keys)

    def look_up(self, asker: Port, query: LookUp) -> None:
        """Answer by `LookedUp` after a delay."""
        delay_s = self._rng.uniform(*GET_S) + asker.lag_s
        self._agenda.after(delay_s, self._answer, asker, asker.life, query)

    def _store(self, node: NodeId, keys: tuple[str, ...]) -> None:
        for key in keys:
            self._providers.setdefault(key, {})[node] = None

    def _answer(self, asker: Port, life: int, query: LookUp) -> None:
        if not asker.up or asker.life != life:
            return
        found = [
            node
            for node in self._providers.get(query.key, {})
            if not self.errors or self._rng.random() >= self.errors
        ]
        if self.errors and self._rng.random() < self.errors:
            found.append(self._rng.choice([*self._everybody, *self.strangers]))
        self._rng.shuffle(found)
        named = tuple(PeerAddress(node, ()) for node in found[: query.limit])
        asker.feed(LookedUp(query.lookup, named))
