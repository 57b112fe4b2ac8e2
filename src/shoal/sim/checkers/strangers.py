"""Check that nodes without rights, or that lie, achieve nothing: I9, I10 and L2."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, final

import msgspec

from shoal.core.durability.journal import Entry, Revoked
from shoal.core.events import Disconnect, Effect, MessageReceived, Send
from shoal.core.leasing.demand_age import AGE_MAX_S
from shoal.core.peer import Peer
from shoal.model.ids import NodeId
from shoal.protocol.grants import GrantRenewed
from shoal.protocol.messages import Refusal, Revocation
from shoal.sim.checkers.violations import Violations
from shoal.sim.faults.forger import FORGED_EPOCH, FORGER
from shoal.sim.node.host import SimHost

CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque)
OPENS: Final[dict[type[object], bool]] = {}
"""Cache: whether instances of a class may hold containers."""

CONTAINER_MAX: Final = 1_200
"""More items than any honest world needs in one container of a machine."""


@final
class Strangers:
    """Checks that a stranger's messages have no effect and use no memory."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._told: dict[tuple[NodeId, int], None] = {}  # lives that heard of it
        self._wrote: dict[NodeId, None] = {}  # nodes with the revocation on disk

    def revoked(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Note that a node, until it crashes, knows the forger is revoked."""
        message = event.message
        if isinstance(message, Revocation) and message.node == FORGER:
            self._told[host.id, host.life] = None

    def safe(self, host: SimHost, entry: Entry) -> None:
        """Note that a node has the revocation on disk."""
        if isinstance(entry, Revoked) and entry.revocation.node == FORGER:
            self._wrote[host.id] = None

    def told_by_revoked(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Check a node's reaction to a peer that it knows is revoked."""
        if host.id in self._wrote or (host.id, host.life) in self._told:
            self.told(host, event, effects)

    def told(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Check a node's reaction to a stranger's message."""
        if host.id == event.peer or isinstance(event.message, Revocation):
            return  # Revocations are signed and count from any sender.
        for effect in effects:
            match effect:
                case Disconnect():
                    pass
                case Send(peer=event.peer, message=Refusal()):
                    pass
                case Send(peer=event.peer, message=GrantRenewed(grant=None, admins=())):
                    pass  # The reason for not renewing its grant.
                case _:
                    what = f"{host.id} does {type(effect).__name__}"
                    told = type(event.message).__name__
                    self._violations.report("I10", f"{what} for a stranger's {told}")

    def sweep(self, hosts: list[SimHost]) -> None:
        """Look for containers above the limit, and for believed lies."""
        for host in hosts:
            largest = largest_container(host.machine) if host.machine else ("", 0)
            if largest[1] > CONTAINER_MAX:
                what = f"{host.id} keeps {largest[1]} items in {largest[0]}"
                self._violations.report("I9", what)
            if isinstance(host.machine, Peer):
                self._check_belief(host, host.machine)

    def _check_belief(self, host: SimHost, peer: Peer) -> None:
        """Report lies of the forger that a node believes."""
        for lease in peer.worker.leases if peer.worker is not None else ():
            if lease.rank.age_s > AGE_MAX_S:
                what = f"{host.id} believes that {lease.peer} waited for"
                self._violations.report("L2", f"{what} {lease.rank.age_s:.0f} s")
        for node, forged in peer.gossip.signed_epochs() if peer.gossip else ():
            if forged >= FORGED_EPOCH and node != FORGER:
                what = f"{host.id} believes what another said of {node}"
                self._violations.report("I10", what)


def largest_container(root: object) -> tuple[str, int]:
    """Return the path and size of the largest container inside an object."""
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
    """Yield a value's children that may hold containers."""
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
    """Whether a value may hold containers."""
    kind = type(value)
    opens = OPENS.get(kind)
    if opens is None:
        opens = OPENS[kind] = _may_hold(kind)
    return opens


def _may_hold(kind: type[object]) -> bool:
    if issubclass(kind, msgspec.Struct):
        # Frozen structs are values; the codec bounds those from peers.
        return not kind.__struct_config__.frozen
    return issubclass(kind, CONTAINERS) or kind.__module__.startswith("shoal.")


def _slots(kind: type[object]) -> list[str]:
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    return [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]


def done_for_forger(
    host: SimHost, event: MessageReceived, effects: list[Effect]
) -> Iterator[str]:
    """Yield what a node does about a message of the forger, but for cutting it off."""
    if event.peer != FORGER or host.id == FORGER:
        return
    for effect in effects:
        if not isinstance(effect, Disconnect):
            told = type(event.message).__name__
            yield f"{host.id} does {type(effect).__name__} for a forged {told}"
