"""What there is between this node and one other: links, messages that wait, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeVar, final

from shoal.net.pulse import Pulse

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.certificates import Shown
    from shoal.net.connection import Connection
    from shoal.net.outbox import Outbox

Note = TypeVar("Note")


@final
class Link:
    """A connection to somebody we admit, and how far it has come."""

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
        self.pulse = Pulse(now)
        self.bad_frames = 0


@final
class Pair:
    """What there is between us and one peer; exists only while there is something."""

    __slots__ = ("broke", "link", "node", "outbox", "rival", "since")

    def __init__(self, node: NodeId, outbox: Outbox, now: float) -> None:
        self.node = node
        self.outbox = outbox
        self.link: Link | None = None  # The one that was selected.
        self.rival: Link | None = None  # Selected next, if the link turns out dead.
        self.broke = False  # Whether the last link ended, and none came up since.
        self.since = now  # When it last had a link, or was first wanted.


@final
class Notes(Generic[Note]):
    """A note for each of some peers. Beyond the limit the oldest note is dropped."""

    def __init__(self, peers_max: int) -> None:
        self._peers_max = peers_max
        self._notes: dict[NodeId, Note] = {}

    def put(self, peer: NodeId, note: Note) -> None:
        """Keep this note, and no other of this peer."""
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
