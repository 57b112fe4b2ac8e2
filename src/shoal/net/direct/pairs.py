"""State per peer: its link and heartbeat, queued messages, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar, final

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.direct.connection import Connection
    from shoal.net.direct.outbox import Outbox
    from shoal.net.identity.certificates import Shown

TICK_S: Final = 0.5
"""How often to call `due`."""

ASK_AFTER_S: Final = 1.0
SILENT_AFTER_S: Final = 5.0
MEASURE_EVERY_S: Final = 10.0
"""Ping this often even under traffic, to notice a change of the path."""

LATE_S: Final = 1.0
"""A tick this late means that this process stood still."""


@final
class Heartbeat:
    """Tells whether the peer of a link is alive, and its round-trip time.

    A side that has heard nothing for a second sends a ping; after five seconds it gives
    the peer up, so a peer that stops is noticed after three and a half to six seconds.
    Time in which this process stood still does not count. It has no clock of its own.

    A frame may take longer than that on a narrow link. So bytes count as heard before
    they are a frame; and who receives a long one asks all the while, for its peer hears
    nothing else of it: questions of that side wait behind the frame.
    """

    __slots__ = ("_asked_at", "_bytes_read", "_heard_at", "_nonce", "_open")

    def __init__(self, now: float) -> None:
        self._heard_at = now
        self._asked_at = now - MEASURE_EVERY_S  # So the first tick asks.
        self._nonce = 0
        self._open = False  # Whether the last question is unanswered.
        self._bytes_read = 0

    def hear(self, now: float) -> None:
        """Note that the peer sent something."""
        self._heard_at = now

    def look(self, bytes_read: int, now: float) -> None:
        """Note how many bytes of the peer are here in all, amid a frame."""
        if bytes_read != self._bytes_read:
            self._bytes_read, self._heard_at = bytes_read, now

    def due(
        self, now: float, *, is_amid_frame: bool = False
    ) -> Literal["ask", "lost"] | None:
        """Return what to do about the peer, if anything."""
        if now - self._heard_at >= SILENT_AFTER_S:
            return "lost"
        if self._open and now - self._asked_at < ASK_AFTER_S:
            return None
        if is_amid_frame and now - self._asked_at >= ASK_AFTER_S:
            return "ask"
        if now - self._heard_at >= ASK_AFTER_S - TICK_S / 2:
            return "ask"
        return "ask" if now - self._asked_at >= MEASURE_EVERY_S else None

    def ask(self, now: float) -> bytes:
        """Return what to send as a ping."""
        self._nonce += 1
        self._asked_at, self._open = now, True
        return self._nonce.to_bytes(8, "big")

    def answer(self, payload: bytes, now: float) -> float | None:
        """Return the round-trip time, if this answers the last ping."""
        if not self._open or payload != self._nonce.to_bytes(8, "big"):
            return None
        self._open = False
        return now - self._asked_at

    def excuse(self, late_s: float) -> None:
        """Ignore a period in which nothing could be received."""
        self._heard_at += late_s


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
