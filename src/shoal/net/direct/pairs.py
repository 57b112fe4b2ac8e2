"""State per peer: its link, queued messages, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeVar, final

from shoal.net.direct.heartbeat import Heartbeat

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.direct.connection import Connection
    from shoal.net.direct.outbox import Outbox
    from shoal.net.identity.certificates import Shown

Note = TypeVar("Note")


@final
class DirectLink:
    """A connection to an admitted peer, and its state."""

    __slots__ = (
        "bad_frames",
        "connection",
        "generation",
        "grant",
        "node",
        "pulse",
        "stage",
    )

    def __init__(self, connection: Connection, shown: Shown, now: float) -> None:
        self.connection = connection
        self.node = shown.node
        self.grant = shown.grant
        self.generation = 0
        self.stage: Literal["proved", "greeted", "up"] = "proved"
        self.pulse = Heartbeat(now)
        self.bad_frames = 0


@final
class Pair:
    """The state of one peer; exists only while there is some."""

    __slots__ = ("broke", "link", "node", "outbox", "rival", "since")

    def __init__(self, node: NodeId, outbox: Outbox, now: float) -> None:
        self.node = node
        self.outbox = outbox
        self.link: DirectLink | None = None  # The one that was selected.
        self.rival: DirectLink | None = (
            None  # Selected next, if the link turns out dead.
        )
        self.broke = False  # Whether the last link ended, and none came up since.
        self.since = now  # When it last had a link, or was first wanted.


@final
class PairNotes(Generic[Note]):
    """A bounded set of notes, one per peer; the oldest is dropped first."""

    def __init__(self, peers_max: int) -> None:
        self._peers_max = peers_max
        self._notes: dict[NodeId, Note] = {}

    def put(self, peer: NodeId, note: Note) -> None:
        """Replace the note of a peer."""
        self._notes.pop(peer, None)
        if len(self._notes) >= self._peers_max:
            del self._notes[next(iter(self._notes))]
        self._notes[peer] = note

    def get(self, peer: NodeId) -> Note | None:
        """Return the note of a peer."""
        return self._notes.get(peer)

    def drop(self, peer: NodeId) -> None:
        """Forget the note of a peer, if there is one."""
        self._notes.pop(peer, None)
