"""Check promises about blobs: B1 to B4.

The truth is what nodes have on their disks, what passes between them, and what their
hosts are asked to do. The bounds of B4 that only a machine can see are read from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import msgspec

from shoal.core.artifacts.blob_transfers import BlobTransfers
from shoal.core.artifacts.piece_fetch import UNDER_WAY_MAX
from shoal.core.artifacts.piece_serving import QUESTIONS_ALL_MAX, READS_MAX
from shoal.core.artifacts.piece_sources import WINDOW_MAX
from shoal.core.events import Effect, MessageReceived
from shoal.core.peer import Peer
from shoal.model.ids import BlobId, NodeId
from shoal.protocol.blobs import BlobPiece, PieceWanted
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.revocations import KnownRevocations
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost

ENDS_S: Final = 240.0
"""Time after the last fault by which every fetch has ended: two tries that stall."""


class BlobErrandState(msgspec.Struct):
    """A fetch that somebody waits for."""

    host: SimHost
    life: int
    what: str
    must_arrive: bool
    is_over: bool = False


@final
class BlobPromises:
    """Checks what arrives, what leaves, and how much is under way."""

    def __init__(
        self,
        violations: Violations,
        agenda: Agenda,
        revocations: KnownRevocations,
    ) -> None:
        self._violations = violations
        self._agenda = agenda
        self._states: dict[int, BlobErrandState] = {}
        self._published: dict[tuple[NodeId, BlobId], None] = {}
        self._asked: dict[tuple[NodeId, NodeId, BlobId], dict[BlobId, None]] = {}
        self._revocations = revocations

    # B1: what arrives is what was asked for. B2: every fetch ends.

    def began(self, token: int, state: BlobErrandState) -> None:
        """Note that a node wants something."""
        self._states[token] = state

    def dropped(self, token: int) -> None:
        """Note that it is wanted no more."""
        self._states[token].is_over = True

    def ended(self, token: int, reason: str, *, is_right: bool, may_have: bool) -> None:
        """Check the end of a fetch, as its caller was told."""
        state = self._states[token]
        if state.is_over:
            self._violations.report("B2", f"{state.what} ends twice")
        state.is_over = True
        if reason and state.must_arrive:
            self._violations.report("B2", f"{state.what} does not arrive: {reason}")
        if not reason and not is_right:
            self._violations.report("B1", f"{state.what} is not what was asked for")
        if not reason and not may_have:
            self._violations.report("B3", f"{state.what} is not for this node")

    def open(self) -> list[str]:
        """Return the fetches of living nodes that have not ended."""
        return [
            state.what
            for state in self._states.values()
            if not state.is_over and state.host.up and state.host.life == state.life
        ]

    def check_over(self, healed_s: float) -> None:
        """Report a fetch that has not ended long after the last fault."""
        if self._agenda.now > healed_s + ENDS_S and (open_ := self.open()):
            self._violations.report("B2", f"{open_[0]} has no end")

    # B3: nobody without the right gets a piece.

    def published(self, host: SimHost, blob: BlobId) -> None:
        """Note that a task of a node gave a blob out."""
        self._published[host.id, blob] = None

    def is_published(self, node: NodeId, blob: BlobId) -> bool:
        """Whether a node gave a blob out."""
        return (node, blob) in self._published

    def told(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Note which tree a peer named when it asked for a blob."""
        wanted = event.message
        assert isinstance(wanted, PieceWanted)
        key = (host.id, event.peer, wanted.blob)
        self._asked.setdefault(key, {})[wanted.under or wanted.blob] = None

    def sent(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check that a piece goes to a member that may have it."""
        assert isinstance(message, BlobPiece)
        if not isinstance(host.machine, Peer):
            return  # A hostile node promises nothing.
        blob = message.blob
        if self._revocations.knows(host, peer):
            what = f"{host.id} sends a piece to {peer}, which it knows revoked"
            self._violations.report("B3", what)
        named = self._asked.get((host.id, peer, blob), {})
        trees = host.blobs.known
        is_told = any(
            blob == name or blob in trees[name].files for name in named if name in trees
        )
        if not is_told and (host.id, blob) not in self._published:
            what = f"{host.id} sends {peer} a piece of {blob[:8]}, which is not for it"
            self._violations.report("B3", what)

    # B4: what is under way is bounded.

    def reads(self, host: SimHost, count: int) -> None:
        """Check how many peers a node reads for at once."""
        if count > READS_MAX:
            self._violations.report("B4", f"{host.id} reads for {count} peers at once")

    def asked(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check how much a node has asked of one peer."""
        blobs = _blobs_of(host)
        if blobs is not None:
            under_way = blobs.fetching.sources.get(peer).under_way
            if under_way > WINDOW_MAX:
                what = f"{host.id} waits for {under_way:,} bytes of {peer}"
                self._violations.report("B4", what)

    def sweep(self, hosts: Iterable[SimHost]) -> None:
        """Check what each machine has under way."""
        for host in hosts:
            blobs = _blobs_of(host) if host.blobs.known else None
            if blobs is None:
                continue
            if blobs.fetching.under_way > UNDER_WAY_MAX + PIECE_BYTES_MAX:
                what = f"{host.id} has {blobs.fetching.under_way:,} bytes under way"
                self._violations.report("B4", what)
            if blobs.serving.questions > QUESTIONS_ALL_MAX:
                self._violations.report("B4", f"{host.id} keeps too many questions")


def _blobs_of(host: SimHost) -> BlobTransfers | None:
    machine = host.machine
    return machine.find(BlobTransfers) if isinstance(machine, Peer) else None
