"""Promises towards those who have no right, or lie: I9, I10 and L2."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, final

import msgspec

from shoal.core.events import Disconnect, Effect, MessageReceived, Send
from shoal.core.journal import Entry, Revoked
from shoal.core.peer import Peer
from shoal.core.seniority import AGE_MAX_S
from shoal.model.ids import NodeId
from shoal.protocol.grants import GrantRenewed
from shoal.protocol.messages import Refusal, Revocation
from shoal.sim.checkers.violations import Violations
from shoal.sim.forger import FORGED_EPOCH, FORGER
from shoal.sim.host import Host

CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque)
OPENS: Final[dict[type[object], bool]] = {}
"""Which classes were found to hold containers, so that each is looked at once."""

CONTAINER_MAX: Final = 1_200
"""More than any honest world of ours needs in one container of a machine."""


@final
class Strangers:
    """Checks that what a stranger says changes nothing, and fills nothing."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._told: dict[tuple[NodeId, int], None] = {}  # lives that know better
        self._wrote: dict[NodeId, None] = {}  # nodes that have it on disk

    def revoked(
        self, host: Host, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Note that a node has heard of the revocation, until it crashes."""
        self._told[host.id, host.life] = None

    def safe(self, host: Host, entry: Entry) -> None:
        """Note that a node knows of the revocation for good."""
        if isinstance(entry, Revoked):
            self._wrote[host.id] = None

    def told_by_revoked(
        self, host: Host, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Check what a node does for somebody of whom it knows that it is revoked."""
        if host.id in self._wrote or (host.id, host.life) in self._told:
            self.told(host, event, effects)

    def told(self, host: Host, event: MessageReceived, effects: list[Effect]) -> None:
        """Check what another node does when a stranger said something."""
        if host.id == event.peer or isinstance(event.message, Revocation):
            return  # A revocation is signed: it counts, whoever passes it on.
        for effect in effects:
            match effect:
                case Disconnect():
                    pass
                case Send(peer=event.peer, message=Refusal()):
                    pass
                case Send(peer=event.peer, message=GrantRenewed(grant=None, admins=())):
                    pass  # It is told why it gets no grant.
                case _:
                    what = f"{host.id} does {type(effect).__name__}"
                    told = type(event.message).__name__
                    self._violations.report("I10", f"{what} for a stranger's {told}")

    def sweep(self, hosts: list[Host]) -> None:
        """Look for a container that grew without bound."""
        for host in hosts:
            largest = largest_container(host.machine) if host.machine else ("", 0)
            if largest[1] > CONTAINER_MAX:
                what = f"{host.id} keeps {largest[1]} items in {largest[0]}"
                self._violations.report("I9", what)
            if isinstance(host.machine, Peer):
                self._check_belief(host, host.machine)

    def _check_belief(self, host: Host, peer: Peer) -> None:
        """Look for a lie that a node took for the truth."""
        for lease in peer.worker.leases if peer.worker is not None else ():
            if lease.rank.age_s > AGE_MAX_S:
                what = f"{host.id} believes that {lease.peer} waited for"
                self._violations.report("L2", f"{what} {lease.rank.age_s:.0f} s")
        for node, forged in peer.gossip.signed_epochs() if peer.gossip else ():
            if forged >= FORGED_EPOCH and node != FORGER:
                what = f"{host.id} believes what another said of {node}"
                self._violations.report("I10", what)


def largest_container(root: object) -> tuple[str, int]:
    """Find the largest container of an object of ours, and where it hangs."""
    largest = ("", 0)
    seen: set[int] = set()
    todo: deque[tuple[str, Any]] = deque([(type(root).__name__, root)])
    while todo:
        path, value = todo.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if issubclass(_kind(value), CONTAINERS) and len(value) > largest[1]:
            largest = (path, len(value))
        todo.extend(_children(path, value))
    return largest


def _children(path: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """List what a value holds, as far as it is made of containers and our classes."""
    kind = _kind(value)
    if issubclass(kind, CONTAINERS):
        inside = f"{path}[]"
        for child in value.values() if issubclass(kind, dict) else value:
            if _opens(child):
                yield inside, child
    else:
        for name in (*getattr(value, "__dict__", ()), *_slots(kind)):
            child = getattr(value, name, None)
            if _opens(child):
                yield f"{path}.{name}", child


def _kind(value: object) -> type[object]:
    return type(value)


def _opens(value: object) -> bool:
    """Whether there may be a container in a value."""
    kind = type(value)
    opens = OPENS.get(kind)
    if opens is None:
        opens = OPENS[kind] = _may_hold(kind)
    return opens


def _may_hold(kind: type[object]) -> bool:
    if issubclass(kind, msgspec.Struct):
        # A frozen one is a value: the codec bounds those that come from peers.
        return not kind.__struct_config__.frozen
    return issubclass(kind, CONTAINERS) or kind.__module__.startswith("shoal.")


def _slots(kind: type[object]) -> list[str]:
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    return [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
