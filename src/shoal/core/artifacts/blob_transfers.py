"""The machine that moves blobs between nodes: what it fetches, and what it serves.

Theory of operation. Parts of this node want blobs and trees (`BlobWanted`,
`TreeWanted`), each under a token, and get one `AnswerFetch` for it. `TreeFetch` decides
which blobs make up a tree, `PieceFetch` which piece of a blob is asked of whom. Other
members ask this node for pieces; `PieceServing` decides what they get, and
`TreeHolders` whom else they may ask.

- `PieceWanted` -> `BlobPiece` for each piece, or `PieceRefusal`; and `BlobHeld` with
  other holders, if the blob is a tree that others have fetched here.
- `BlobHeld` without holders: the sender holds all of this tree now.

Only members are heard: the rack sees to that. Bytes pass through by reference. Hashes
of bytes, and everything on disk, are the host's; its answers are facts like others.

Nothing is journalled: what was stored is on disk, and whoever still wants something
after a restart asks again. Each part says what bounds it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, final, get_args

from shoal.core.artifacts.events import (
    AnswerFetch,
    BlobEvent,
    BlobFinished,
    BlobGivenOut,
    BlobWanted,
    FetchDropped,
    PiecesFound,
    PiecesRead,
    PiecesStored,
    RoomMade,
    TreeRead,
    TreeWanted,
)
from shoal.core.artifacts.piece_fetch import FetchEnded, PieceFetch
from shoal.core.artifacts.piece_serving import PieceServing
from shoal.core.artifacts.tree_fetch import TreeFetch
from shoal.core.artifacts.tree_holders import TreeHolders
from shoal.core.events import (
    DeadlineReached,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
    Tell,
)
from shoal.core.machine import Mount
from shoal.core.proximity.network_map import unknown
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.messages import BlobHeld, ToStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.core.artifacts.tree_fetch import TreeStep
    from shoal.core.events import Effect, Event
    from shoal.core.membership.roster import Roster
    from shoal.core.proximity.network_map import Paths
    from shoal.core.scheduling.scheduler import Scheduler
    from shoal.model.ids import BlobId, NodeId

    Take = Callable[[Any, float], Sequence[TreeStep]]

_MESSAGES: Final = get_args(ToStore)


@final
class BlobTransfers:
    """All blobs that one node fetches and serves."""

    mount = Mount(takes=dict.fromkeys(_MESSAGES), hears=get_args(BlobEvent))

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        scheduler: Scheduler | None,
        paths: Paths = unknown,
    ) -> None:
        """Serve members of `roster`; `scheduler` knows where workers can be reached.

        `paths` tells what is between two nodes: blobs come from the nearest holders.
        """
        self.fetching = PieceFetch(lambda peer: paths(peer, node))
        self.serving = PieceServing(roster)
        self.holders = TreeHolders(
            (lambda _: "") if scheduler is None else scheduler.views.address, paths
        )
        self._trees = TreeFetch(node, self.fetching)
        self._blobs: dict[int, BlobId] = {}  # wanted by themselves, by token
        self._now = 0.0  # of the last event
        self._takers: dict[type, Take] = {
            MessageReceived: self._on_message,
            PeerConnected: self._on_peer_connected,
            PeerLost: self._on_peer_lost,
            DeadlineReached: self._on_deadline,
            BlobWanted: self._on_blob_wanted,
            TreeWanted: lambda event, _: self._trees.want(event),
            FetchDropped: self._on_dropped,
            RoomMade: self.fetching.on_room,
            PiecesStored: self.fetching.on_stored,
            PiecesFound: self.fetching.on_found,
            BlobFinished: lambda event, _: self.fetching.on_finished(event),
            TreeRead: self._on_tree_read,
            PiecesRead: self.serving.on_read,
            BlobGivenOut: self._on_given_out,
        }

    @property
    def is_busy(self) -> bool:
        """Whether blobs are on their way to this node or from it."""
        return len(self.fetching) > 0 or self.serving.questions > 0

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        take = self._takers.get(type(event))
        if take is None:
            return []  # A fact for other machines of this node.
        self._now = now
        todo = deque(take(event, now))
        effects: list[Effect] = []
        while todo:
            step = todo.popleft()
            if isinstance(step, FetchEnded):
                todo.extend(self._ended(step, now))
            else:
                effects.append(step)
        effects += self.fetching.ask(now)
        if self.fetching.samples:
            effects += [Tell(sample) for sample in self.fetching.samples]
            self.fetching.samples.clear()
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        pieces = self.fetching.next_deadline(self._now)
        trees = self._trees.next_deadline()
        if pieces is None or trees is None:
            return trees if pieces is None else pieces
        return min(pieces, trees)

    # What peers say.

    def _on_message(self, event: MessageReceived, now: float) -> Sequence[TreeStep]:
        peer, message = event.peer, event.message
        match message:
            case BlobPiece():
                return self.fetching.on_piece(peer, message, now)
            case PieceWanted():
                return self._on_wanted(peer, message)
            case PieceRefusal():
                return self.fetching.on_refusal(peer, message)
            case BlobHeld():
                return self._on_held(peer, message)
            case _:
                return []

    def _on_wanted(self, peer: NodeId, wanted: PieceWanted) -> Sequence[TreeStep]:
        effects = self.serving.on_wanted(peer, wanted)
        holders = self.holders.besides(peer, wanted.blob)
        if holders:
            effects.append(Send(peer, BlobHeld(blob=wanted.blob, holders=holders)))
        return effects

    def _on_held(self, peer: NodeId, held: BlobHeld) -> Sequence[TreeStep]:
        if held.holders:
            return self._trees.on_hint(peer, held)
        if self.serving.knows(held.blob):
            self.holders.note(held.blob, peer)
        return []

    # What this node wants.

    def _on_blob_wanted(self, event: BlobWanted, now: float) -> Sequence[TreeStep]:
        self._blobs[event.token] = event.blob
        return self.fetching.want(
            event.token,
            event.blob,
            event.sources,
            event.under,
            now,
            lost_s=event.lost_s,
        )

    def _on_dropped(self, event: FetchDropped, _: float) -> Sequence[TreeStep]:
        if event.token in self._trees:
            return self._trees.drop(event.token)
        blob = self._blobs.pop(event.token, None)
        return [] if blob is None else self.fetching.drop(event.token, blob)

    def _ended(self, ended: FetchEnded, now: float) -> Sequence[TreeStep]:
        """Tell who wanted a blob how it ended."""
        steps: list[TreeStep] = []
        for token in ended.tokens:
            if token in self._trees:
                steps += self._trees.on_blob(token, ended.blob, ended.reason, now)
            elif self._blobs.pop(token, None) is not None:
                steps.append(AnswerFetch(token, ended.reason))
        return steps

    # What the host says.

    def _on_tree_read(self, event: TreeRead, now: float) -> Sequence[TreeStep]:
        served = self.serving.on_tree(event)
        return [*served, *self._trees.on_read(event, now)]

    def _on_given_out(self, event: BlobGivenOut, _: float) -> Sequence[TreeStep]:
        self.serving.give_out(event.blob)
        return []

    def _on_peer_connected(self, event: PeerConnected, _: float) -> Sequence[TreeStep]:
        self.fetching.on_link(event.peer)
        return []

    def _on_peer_lost(self, event: PeerLost, now: float) -> Sequence[TreeStep]:
        self.serving.on_lost(event.peer)
        return self.fetching.on_link_lost(event.peer, now)

    def _on_deadline(self, _: DeadlineReached, now: float) -> Sequence[TreeStep]:
        return [*self.fetching.on_deadline(now), *self._trees.on_deadline(now)]
