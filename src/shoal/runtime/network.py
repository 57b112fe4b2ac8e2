"""The network of a live node: both ways to peers, and every way to find them.

Direct links are there at once. libp2p takes a second and 80 MB to load, so it is
started after the node is ready, and not at all while there is nobody to find: a lone
node that listens on loopback, and has invited nobody, stays as small as it is.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.events import AddressesChanged
from shoal.errors import UsageError
from shoal.model.addresses import direct_ones, stream_ones
from shoal.net.direct import DirectLinks
from shoal.net.libp2p.port import Libp2p
from shoal.net.libp2p.settings import Greeting, Settings
from shoal.net.petname import petname
from shoal.net.ways import Ways
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import Hello
from shoal.runtime.acquaintances import Acquaintances
from shoal.runtime.finding import WAYS, Finders, Finding, Hearing, Libp2pEars
from shoal.runtime.listening import (
    is_loopback,
    libp2p_announce,
    libp2p_listen,
    listen,
    write_port,
)
from shoal.runtime.membership import next_epoch
from shoal.runtime.neighbours import Neighbours
from shoal.runtime.relaying import relay_room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.core.membership import Admission
    from shoal.model.ids import NodeId
    from shoal.runtime.listening import NetworkOptions
    from shoal.runtime.node import Node
    from shoal.runtime.reception import Reception


def finding_of(without: Iterable[str]) -> Finding:
    """Return by which ways to find others; raise `UsageError` if one is unknown."""
    for way in without:
        if way not in WAYS:
            raise UsageError(
                f"there is no way '{way}' to do without",
                because=f"the ways are {', '.join(WAYS)}",
                hint="write it like --without mdns",
            )
    return Finding(**dict.fromkeys(without, False))


@final
class Network:
    """All of a node's network; `links` and `finder` are what the machine uses."""

    def __init__(
        self,
        links: Ways,
        finder: Finders,
        libp2p: Libp2p | None,
        neighbours: Neighbours,
        known: Acquaintances,
        *,
        is_lonely: bool,
        is_gate: bool,
    ) -> None:
        self.links: Final = links
        self.finder: Final = finder
        self.libp2p: Final = libp2p
        self.is_gate: Final = is_gate
        self._neighbours = neighbours
        self._known = known
        self._is_lonely = is_lonely
        self._is_ready = False
        self.admission: Callable[[NodeId], Admission | None] = lambda _: None

    @property
    def acquaintances(self) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Members that this node was linked to of late, and its gates, and where."""
        return list(self._known)

    @property
    def doors(self) -> tuple[str, ...]:
        """Where a newcomer may ask to be let in: here, and at gates linked to us.

        Also at admins, to whom our invitations are given when we leave.
        """
        here = direct_ones(self.links.addresses)
        gates = (at for where in self._neighbours.gates.values() for at in where)
        admins = (at for node, at in self._known if self._is_linked_admin(node))
        others = direct_ones([*gates, *(one for at in admins for one in at)])
        return tuple(dict.fromkeys((*here, *others)))[:ADDRESSES_MAX]

    @property
    def p2p_state(self) -> str:
        """Say how libp2p is, in a few words."""
        if self.libp2p is None:
            return "off"
        if not self.libp2p.is_started:
            return "not needed yet"
        if self.libp2p.is_up:
            return "up"
        why = self.libp2p.stopped_because
        return f"starting again: {why}" if why else "starting"

    @property
    def counts(self) -> dict[str, int]:
        """How often what happened to links, and in libp2p."""
        p2p = {} if self.libp2p is None else self.libp2p.counts
        return {**self.links.counts, **{f"p2p {key}": n for key, n in p2p.items()}}

    @property
    def gates(self) -> tuple[NodeId, ...]:
        """The gates that this node was told of when it joined."""
        return self._known.gates

    def _is_linked_admin(self, node: NodeId) -> bool:
        admission = self.admission(node) if node in self.links.connected else None
        return admission is not None and "admin" in admission.roles

    def begin(self) -> None:
        """Start what is slow: the node is ready."""
        self._is_ready = True
        if not self._is_lonely:
            self._start()

    def expect_company(self) -> None:
        """Start libp2p even on a lone node: somebody was invited, or has come."""
        self._is_lonely = False
        if self._is_ready:
            self._start()

    def _start(self) -> None:
        if self.libp2p is not None and not self.libp2p.is_started:
            self.libp2p.start()


async def make_network(node: Node, options: NetworkOptions, desk: Reception) -> Network:
    """Return the ways of this node to others, listening already."""
    finding = finding_of(options.without)
    hello = Hello(
        generation=next_epoch(node.home),
        name=petname(node.id),
        grant=node.membership.grant,
    )
    hearing = Hearing(node.listener)
    ways = Ways(node.id, hearing)
    direct = DirectLinks(
        node.identity,
        node.membership.grant,
        admit=node.admit,
        listener=ways.direct_ears,
        hello=msgspec.structs.replace(hello, grant=None),  # It is in the certificate.
        desk=desk,
        porter=desk.porter,
        holds=finding.p2p,
    )
    node.renewals.on_kept(direct.renew)
    place = await listen(direct, node.home, options, is_on=finding.direct)
    known = _acquaintances(node, finding)
    is_public = not is_loopback(place.host)
    is_gate = _is_gate(node, options, is_asked_by_all=is_public and not len(known))
    rng = Random(node.id)
    neighbours = Neighbours(ways, known, rng, asks=finding.peers, relays=is_gate)
    libp2p: Libp2p | None = None
    if finding.p2p:
        settings = Settings(
            shoal=str(node.membership.root),
            listen=(libp2p_listen(node.home, place, options),),
            announce=libp2p_announce(options),
            direct=direct.addresses,
            gates=tuple(a for _, where in known for a in stream_ones(where)),
            is_gate=is_gate,
            is_relayed=not is_gate,
            relay=relay_room(options.relay),
            mdns=finding.mdns,
        )

        def moved_house() -> None:
            write_port(node.home, ways.addresses)
            node.feed(AddressesChanged(ways.addresses))
            neighbours.tell_addresses()

        ears = Libp2pEars(ways, hearing, finding, neighbours, moved_house)
        greeting = Greeting(hello=partial(_shown, node, hello), admit=node.admit)
        libp2p = Libp2p(node.identity, settings, greeting, ears)
    ways.attach(direct, libp2p, dials=finding.direct)
    finder = Finders(neighbours, libp2p, hearing, finding)
    is_lonely = not len(known) and not is_public and not options.gate
    parts = (ways, finder, libp2p, neighbours, known)
    network = Network(*parts, is_lonely=is_lonely, is_gate=is_gate)
    hearing.attach(neighbours, desk.take, network.expect_company)
    desk.company.links, desk.company.linked = ways, lambda: ways.connected
    desk.company.admission = network.admission = node.admission
    neighbours.start()
    return network


def _shown(node: Node, hello: Hello) -> Hello:
    """Return what newcomers on libp2p are told, with the grant of now."""
    return msgspec.structs.replace(hello, grant=node.membership.grant)


def _acquaintances(node: Node, finding: Finding) -> Acquaintances:
    if not finding.gates:
        return Acquaintances(None)
    return Acquaintances(node.home.path / "peers.json", node.membership.gates)


def _is_gate(node: Node, options: NetworkOptions, *, is_asked_by_all: bool) -> bool:
    """Whether to relay: who knows no gate is the one that others join through."""
    wanted = is_asked_by_all if options.gate is None else options.gate
    return wanted and "gate" in node.membership.grant.roles
