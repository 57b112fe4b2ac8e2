"""Build the network of a live node: direct links, libp2p and discovery.

Direct links work at once. libp2p takes a second and 80 MB to load, so it starts after
the node is ready. A lone node that knows no member and listens only on loopback does
not start it until somebody is invited or connects.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.discovery.events import (
    ExpectCompany,
    KeepMembers,
    NetworkOpened,
    ReachPeer,
)
from shoal.core.events import AddressesChanged
from shoal.interfaces import is_loopback
from shoal.model.addresses import direct_ones, stream_ones
from shoal.net.direct.links import DirectLinks
from shoal.net.identity.petname import petname
from shoal.net.libp2p.port import Libp2p, is_installed
from shoal.net.libp2p.settings import Greeting, Libp2pSettings
from shoal.net.link_selector import LinkSelector
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import Hello
from shoal.runtime.discovery.finders import (
    Finders,
    Libp2pListener,
)
from shoal.runtime.discovery.known_members import MEMBERS_FILE, MembersFile
from shoal.runtime.discovery.listen_addresses import (
    address_of,
    bind,
    libp2p_announce,
    libp2p_listen,
    write_port,
)
from shoal.runtime.discovery.relay_limits import relay_room
from shoal.runtime.membership.shoal_membership import next_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.core.discovery.neighbours import Neighbours
    from shoal.core.events import Effect
    from shoal.core.membership.members import Admission
    from shoal.model.ids import NodeId
    from shoal.net.base import LinkListener
    from shoal.protocol.messages import Grant
    from shoal.runtime.admission.admission_desk import AdmissionDesk
    from shoal.runtime.discovery.listen_addresses import (
        ListenAddress,
        NetworkOptions,
    )
    from shoal.runtime.node import Node


@final
class NodeNetwork:
    """A node's whole network; the machine uses `links` and `finder`."""

    def __init__(
        self,
        links: LinkSelector[DirectLinks, Libp2p],
        finder: Finders,
        neighbours: Neighbours,
        members: MembersFile,
        admission: Callable[[NodeId], Admission | None],
        *,
        is_lonely: bool,
        is_gate: bool,
    ) -> None:
        self.links: Final = links
        self.finder: Final = finder
        self.libp2p: Final = links.streams
        self.is_gate: Final = is_gate
        self._neighbours = neighbours
        self._known = neighbours.known
        self._members = members
        self._admission = admission
        self._is_lonely = is_lonely
        self._is_ready = False

    @property
    def performers(self) -> Mapping[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {
            ReachPeer: self._reach,
            KeepMembers: self._members.keep,
            ExpectCompany: self._expect_company,
        }

    def show_grant(self, grant: Grant) -> None:
        """Present this grant on links that come up from now on."""
        self.links.direct.renew(grant)

    def _reach(self, effect: ReachPeer) -> None:
        self.links.reach(effect.peer)

    def _expect_company(self, _: ExpectCompany) -> None:
        self.expect_company()

    @property
    def acquaintances(self) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Gates and recent neighbours, with their addresses."""
        return list(self._known)

    @property
    def doors(self) -> tuple[str, ...]:
        """Addresses where a newcomer may ask to join.

        These are our own, those of linked gates, and those of linked admins, which
        take over our invitations when we leave.
        """
        here = direct_ones(self.links.addresses)
        gates = (at for where in self._neighbours.gates.values() for at in where)
        admins = (at for node, at in self._known if self._is_linked_admin(node))
        others = direct_ones([*gates, *(one for at in admins for one in at)])
        return tuple(dict.fromkeys((*here, *others)))[:ADDRESSES_MAX]

    @property
    def p2p_state(self) -> str:
        """The state of libp2p, in a few words."""
        if self.libp2p is None:
            return "off" if is_installed() else "not installed: direct links only"
        if not self.libp2p.is_started:
            return "not needed yet"
        if self.libp2p.is_up:
            return "up"
        why = self.libp2p.stopped_because
        return f"starting again: {why}" if why else "starting"

    @property
    def counts(self) -> dict[str, int]:
        """Event counters of links and libp2p."""
        p2p = {} if self.libp2p is None else self.libp2p.counts
        return {**self.links.counts, **{f"p2p {key}": n for key, n in p2p.items()}}

    @property
    def gates(self) -> tuple[NodeId, ...]:
        """The gates recorded when this node joined."""
        return self._known.gates

    def _is_linked_admin(self, node: NodeId) -> bool:
        admission = self._admission(node) if node in self.links.peers else None
        return admission is not None and "admin" in admission.roles

    def begin(self) -> None:
        """Start libp2p, now that the node is ready, unless it is alone."""
        self._is_ready = True
        if not self._is_lonely:
            self._start()

    def expect_company(self) -> None:
        """Start libp2p on a lone node, after an invitation or a connection."""
        self._is_lonely = False
        if self._is_ready:
            self._start()

    def _start(self) -> None:
        if self.libp2p is not None and not self.libp2p.is_started:
            self.libp2p.start()


async def make_network(
    node: Node, options: NetworkOptions, desk: AdmissionDesk
) -> NodeNetwork:
    """Return this node's network, already listening."""
    finding, known = node.settings.finding, node.neighbours.known
    place = await bind(node.id, node.home, options, is_on=finding.direct)
    is_public = not is_loopback(address_of(place.host))
    is_gate = _is_gate(node, options, is_asked_by_all=is_public and not len(known))
    has_libp2p = finding.p2p and is_installed()
    hello = Hello(
        generation=next_epoch(node.home),
        name=petname(node.id),
        grant=node.membership.grant,
    )

    def direct(ears: LinkListener) -> DirectLinks:
        return DirectLinks(
            node.identity,
            node.membership.grant,
            admit=node.admit,
            listener=ears,
            hello=msgspec.structs.replace(hello, grant=None),  # In the certificate.
            desk=desk,
            holds=has_libp2p,
        )

    def streams(ways: LinkSelector[DirectLinks, Libp2p]) -> Libp2p:
        def moved_house() -> None:
            write_port(node.home, ways.addresses)
            node.feed(AddressesChanged(ways.addresses))

        settings = _libp2p_settings(node, options, place, is_gate=is_gate)
        greeting = Greeting(hello=partial(_shown, node, hello), admit=node.admit)
        ears = Libp2pListener(ways, node.listener, finding, node.feed, moved_house)
        return Libp2p(node.identity, settings, greeting, ears)

    ways = LinkSelector(
        node.id,
        node.listener,
        direct=direct,
        streams=streams if has_libp2p else None,
        dials=finding.direct,
    )
    await ways.direct.serve(place.sockets, place.announced)
    members = MembersFile(node.home.path / MEMBERS_FILE if finding.gates else None)
    parts = (ways.streams, node.listener, finding, members)
    finder = Finders(ways, *parts, Random(node.id))
    is_lonely = not len(known) and not is_public and not options.gate
    node.feed(NetworkOpened(is_gate))
    return NodeNetwork(
        ways,
        finder,
        node.neighbours,
        members,
        node.admission,
        is_lonely=is_lonely,
        is_gate=is_gate,
    )


def _libp2p_settings(
    node: Node, options: NetworkOptions, place: ListenAddress, *, is_gate: bool
) -> Libp2pSettings:
    known = node.neighbours.known
    return Libp2pSettings(
        shoal=str(node.membership.root),
        listen=(libp2p_listen(node.home, place, options),),
        announce=libp2p_announce(options),
        direct=tuple(place.announced),
        gates=tuple(a for _, where in known for a in stream_ones(where)),
        is_gate=is_gate,
        is_relayed=not is_gate,
        relay=relay_room(options.relay),
        mdns=node.settings.finding.mdns,
    )


def _shown(node: Node, hello: Hello) -> Hello:
    """Return the greeting for libp2p peers, with the current grant."""
    return msgspec.structs.replace(hello, grant=node.membership.grant)


def _is_gate(node: Node, options: NetworkOptions, *, is_asked_by_all: bool) -> bool:
    """Whether to relay: by default, if public and knowing no other member."""
    wanted = is_asked_by_all if options.gate is None else options.gate
    return wanted and "gate" in node.membership.grant.roles
