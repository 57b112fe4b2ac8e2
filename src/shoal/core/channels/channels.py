"""Channels of one node: streams of bytes between a user's command and a task.

Theory of operation. A channel joins two ends. The *opener* sends `ChannelOpen` and
repeats it until something is heard. The *server* answers with an empty batch and has
its host do what the channel is for (`ServeChannel`). From then on both ends carry items
by a `ReliableStream`: each item arrives once, in order, or the channel ends.

A command reaches a task in one or two channels. The scheduler of the job opens one to
the worker (`attempt`). If the command was typed at another node of the owner, that node
opens one to the scheduler (`job`, `task`), whose host joins the two. A task that calls
the API of its shoal does so in a channel that its worker opens to the scheduler.

- Who may. A worker serves the scheduler whose attempt runs there, and nobody else. A
  node serves `job` to nodes of its own owner; its API decides about the job. Items are
  taken from the node at the other end only. The roster is asked before anything is
  sent: a node that is known to be revoked gets nothing more, not even an end.
- A task's own channel (`api`) is served to the worker that runs its attempt, if that
  belongs to the owner of the job, and only while the attempt is live. This is asked
  anew before anything is taken or sent, so the right ends with the attempt.
- Once. A channel is a slot of its opener, the life of that node, and a number that
  rises. A server remembers the latest channel of each slot. An older one, or the same
  again after its end, opens nothing, however late it comes. A later one ends the
  former: its opener has forgotten that.
- Credit. An end keeps at most `WINDOW_BYTES` that were not taken, and then pauses its
  host. An end whose host is slow says that it is not `open`, and takes what is under
  way. Whoever sends on regardless loses the channel after `FLOOD_BYTES`. A host that
  passes on what it gets may add two windows to its own: what it was given at once, and
  what was under way. So a channel holds three windows at each end, and a node has
  `CHANNELS_MAX` of peers and `OPENED_MAX` of its own.
- Ends. A host that is done says `ChannelFinished`; when all was taken, the other end
  gets a `ChannelEnd`. Whoever gets items for a channel that it does not have answers
  with one, too. What the items meant to say, such as an exit code, tells a whole
  channel from one that was cut off.
- Silence. The opener asks for a word every `BEAT_S`. An end that hears nothing for
  `SILENT_S`, or `UNLINKED_S` after its link broke, is given up. An opener that never
  hears anything gives up after `HEARD_S`: older nodes know no channels.

Nothing is durable. A node that restarts has no channels, and says so when asked.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.calls.reliable_stream import ReliableStream
from shoal.core.channels.events import (
    ChannelDropped,
    ChannelFinished,
    ChannelSlowed,
    ChannelWanted,
    ChannelWrote,
    DeliverItems,
    EndChannel,
    PauseChannel,
    ServeChannel,
    TaskClosed,
    TaskOpened,
)
from shoal.core.deadlines import Deadlines
from shoal.core.events import (
    DeadlineReached,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.machine import Mount
from shoal.model.backoff import Backoff
from shoal.protocol.channels.messages import (
    ChannelBatch,
    ChannelEnd,
    ChannelId,
    ChannelOpen,
)
from shoal.protocol.limits import SLOTS_MAX
from shoal.protocol.messages import Goodbye

if TYPE_CHECKING:
    from shoal.core.events import Effect, Event
    from shoal.core.membership.members import Admission
    from shoal.core.membership.roster import Roster
    from shoal.core.scheduling.scheduler import Scheduler
    from shoal.model.ids import Attempt, NodeId, OwnerId

CHANNELS_MAX: Final = 256
"""Channels that peers have open here, all together."""

OPENED_MAX: Final = 512
"""Channels that this node has open elsewhere."""

WINDOW_BYTES: Final = 512 << 10
RESUME_BYTES: Final = WINDOW_BYTES // 2
FLOOD_BYTES: Final = 4 * WINDOW_BYTES
"""More than an honest end has under way when it hears to wait."""

BEAT_S: Final = 10.0
SILENT_S: Final = 3.5 * BEAT_S
UNLINKED_S: Final = 10.0
HEARD_S: Final = 8.0
OPEN_AGAIN: Final = Backoff(0.5, 4.0)
FLOODED: Final = "it sent more than it was told that there is room for"
UNKNOWN: Final = "the other node knows no such channel"
NOT_HERE: Final = "the task does not run here"


class _End(msgspec.Struct):
    """One end of a channel that is open, or being opened."""

    number: int
    peer: NodeId
    asked: ChannelOpen
    stream: ReliableStream[ChannelBatch]
    gives_up_at: float
    beat_at: float  # of an opener: when it asks for a word, or to be opened, again
    heard_at: float  # when the other end last said something, or this one was made
    tries: int = 0  # of opening; rises until something is heard
    heard: bool = False
    paused: bool = False
    excess_bytes: int = 0  # that came while the host was too slow for them
    finished: bool = False

    @property
    def is_opener(self) -> bool:
        return self.number > 0

    @property
    def is_task(self) -> bool:
        """Whether a task calls through it."""
        return self.asked.use.kind == "api"

    @property
    def key(self) -> _Key:
        return (self.peer, self.asked.channel, self.is_opener)


_Key = tuple["NodeId", ChannelId, bool]  # whether this node opened it


@final
class Channels:
    """Decides who may have a channel, and carries what goes through it."""

    mount = Mount(
        takes={ChannelOpen: None, ChannelBatch: None, ChannelEnd: None},
        hears=(
            ChannelWanted,
            ChannelWrote,
            ChannelSlowed,
            ChannelFinished,
            ChannelDropped,
            TaskOpened,
            TaskClosed,
        ),
    )

    def __init__(
        self,
        roster: Roster,
        owner: OwnerId | None,
        life: int,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Serve nodes of `owner`; None: only schedulers of attempts that run here.

        `life` is larger than in any earlier life of this node. Tasks of `scheduler`
        call the API here.
        """
        self._scheduler = scheduler
        self.counts: Counter[str] = Counter()
        self._roster = roster
        self._owner = owner
        self._life = life
        self._use = 0
        self._served = 0  # the number of the latest end that a peer opened, negated
        self._ends: dict[int, _End] = {}
        self._numbers: dict[_Key, int] = {}
        self._attempts: dict[Attempt, None] = {}  # that run here
        # The latest channel of each slot of each peer: SLOTS_MAX at most for each.
        self._latest: dict[NodeId, dict[int, ChannelId]] = {}
        self._due: Deadlines[int] = Deadlines()

    @property
    def waiting_bytes(self) -> int:
        """How much waits at the ends of this node to be taken by others."""
        return sum(end.stream.waiting_bytes for end in self._ends.values())

    @property
    def open(self) -> int:
        """How many ends of channels are here."""
        return len(self._ends)

    @property
    def served(self) -> int:
        """How many channels of peers are open here."""
        return sum(not end.is_opener for end in self._ends.values())

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it, in order. Raising is a bug."""
        match event:
            case MessageReceived(message=ChannelBatch() as batch):
                return self._on_batch(event.peer, batch, now)
            case MessageReceived(message=ChannelOpen() as asked):
                return self._on_open(event.peer, asked, now)
            case MessageReceived(message=ChannelEnd() as told):
                return self._on_end(event.peer, told)
            case MessageReceived(message=Goodbye()):
                return self._pump_all(event.peer, now)
            case ChannelWanted():
                return self._on_wanted(event, now)
            case ChannelWrote() | ChannelSlowed() | ChannelFinished():
                return self._on_host(event, now)
            case ChannelDropped():
                end = self._ends.get(event.end)
                return [] if end is None else self._tell_end(end, event.reason, now)
            case TaskOpened():
                self._attempts[event.attempt] = None
                return []
            case TaskClosed():
                self._attempts.pop(event.attempt, None)
                return self._close_calls(event.attempt, now)
            case PeerConnected():
                return self._on_linked(event.peer, now)
            case PeerLost():
                return self._on_unlinked(event.peer, now)
            case DeadlineReached():
                return self._on_deadline(now)
            case _:
                return []  # A fact for another machine of this node.

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._due.next()

    # Opening.

    def _on_wanted(self, event: ChannelWanted, now: float) -> list[Effect]:
        if event.use.kind == "api" and event.attempt not in self._attempts:
            return [EndChannel(event.end, NOT_HERE)]
        slot = self._free_slot(event.peer)
        opened = sum(end.is_opener for end in self._ends.values())
        if slot is None or opened >= OPENED_MAX:
            self.counts["channels wanted, too many"] += 1
            most = SLOTS_MAX if slot is None else OPENED_MAX
            return [EndChannel(event.end, f"{most} are open, which is the most")]
        self._use += 1
        asked = ChannelOpen(
            channel=ChannelId(self._life, self._use, slot),
            use=event.use,
            attempt=event.attempt,
            job=event.job,
            task=event.task,
        )
        end = self._add(event.end, event.peer, asked, now)
        end.gives_up_at = now + HEARD_S
        end.beat_at = now  # That sends it.
        return self._pump(end, now)

    def _free_slot(self, peer: NodeId) -> int | None:
        taken = {
            end.asked.channel.slot
            for end in self._ends.values()
            if end.is_opener and end.peer == peer
        }
        return next((n for n in range(SLOTS_MAX) if n not in taken), None)

    def _add(self, number: int, peer: NodeId, asked: ChannelOpen, now: float) -> _End:
        make = partial(ChannelBatch, channel=asked.channel, by_opener=number > 0)
        stream = ReliableStream(make, WINDOW_BYTES)
        end = _End(number, peer, asked, stream, now + SILENT_S, now + BEAT_S, now)
        self._ends[number] = end
        self._numbers[end.key] = number
        return end

    def _on_open(self, peer: NodeId, asked: ChannelOpen, now: float) -> list[Effect]:
        channel = asked.channel
        latest = self._latest.setdefault(peer, {}).get(channel.slot)
        if latest is not None and channel < latest:
            self.counts["channels opened too late"] += 1
            return []
        if channel == latest:
            number = self._numbers.get((peer, channel, False))
            if number is None:
                return [_end_of(peer, channel, UNKNOWN, by_opener=False)]
            self._ends[number].stream.answer()
            return self._pump(self._ends[number], now)
        effects: list[Effect] = []
        if latest is not None:
            effects += self._end_former(peer, latest)
        self._latest[peer][channel.slot] = channel
        caller = self._roster.recall(peer, now)
        if isinstance(caller, str):
            return effects
        if reason := self._refusal(caller, asked):
            self.counts["channels refused"] += 1
            return [*effects, _end_of(peer, channel, reason, by_opener=False)]
        self.counts["channels served"] += 1
        self._served -= 1
        end = self._add(self._served, peer, asked, now)
        end.heard = True
        end.stream.answer()
        effects.append(ServeChannel(end.number, caller, asked))
        return effects + self._pump(end, now)

    def _end_former(self, peer: NodeId, channel: ChannelId) -> list[Effect]:
        number = self._numbers.get((peer, channel, False))
        if number is None:
            return []
        return self._forget(self._ends[number], "its opener opened another")

    def _refusal(self, caller: Admission, asked: ChannelOpen) -> str:
        """Return why a member may not have a channel; empty if it may."""
        if self.served >= CHANNELS_MAX:
            return f"{CHANNELS_MAX} channels are open there, which is the most"
        if asked.use.kind == "api":
            return self._no_calls(caller, asked.attempt)
        if asked.attempt is None:
            own = self._is_ours(caller.owner)
            return "" if own else "it is for nodes of the same owner"
        if not self._is_of(caller.node, asked.attempt):
            return (
                "the task does not run there yet, or not any more, or not for this node"
            )
        return ""

    def _no_calls(self, caller: Admission, attempt: Attempt | None) -> str:
        """Return why a worker may not call the API for a task; empty if it may."""
        if self._scheduler is None or attempt is None:
            return "it schedules no such task"
        return self._scheduler.children.refusal(caller, attempt)

    def _close_calls(self, attempt: Attempt, now: float) -> list[Effect]:
        """End the channels through which a task called, once it has ended."""
        ends = [
            end
            for end in self._ends.values()
            if end.is_task and end.is_opener and end.asked.attempt == attempt
        ]
        return [
            effect
            for end in ends
            for effect in (
                *self._tell_end(end, NOT_HERE, now),
                EndChannel(end.number, NOT_HERE),
            )
        ]

    def _is_ours(self, owner: OwnerId) -> bool:
        return owner == self._owner

    def _is_of(self, peer: NodeId, attempt: Attempt) -> bool:
        """Whether an attempt runs here for the scheduler that asks."""
        return attempt in self._attempts and attempt.scheduler == peer

    # Both ends.

    def _on_batch(self, peer: NodeId, batch: ChannelBatch, now: float) -> list[Effect]:
        is_opener = not batch.by_opener
        number = self._numbers.get((peer, batch.channel, is_opener))
        if number is None:
            self.counts["items for no channel"] += 1
            return [_end_of(peer, batch.channel, UNKNOWN, by_opener=is_opener)]
        end = self._ends[number]
        if end.is_task and self._void(end, now):
            return self._pump(end, now)  # That ends it.
        end.heard_at, end.gives_up_at = now, now + SILENT_S
        if not end.heard:
            end.heard = True
            end.beat_at = now + BEAT_S
        fresh = end.stream.receive(batch, now)
        effects: list[Effect] = []
        if fresh and not end.finished:
            if not end.stream.open:
                end.excess_bytes += sum(map(len, fresh))
            if end.excess_bytes > FLOOD_BYTES:
                self.counts["channels ended, flooded"] += 1
                return [*self._tell_end(end, FLOODED, now), EndChannel(number, FLOODED)]
            effects.append(DeliverItems(number, tuple(fresh)))
        return effects + self._pump(end, now)

    def _on_end(self, peer: NodeId, told: ChannelEnd) -> list[Effect]:
        number = self._numbers.get((peer, told.channel, not told.by_opener))
        if number is None:
            return []
        return self._forget(self._ends[number], told.reason)

    def _on_host(
        self, event: ChannelWrote | ChannelSlowed | ChannelFinished, now: float
    ) -> list[Effect]:
        end = self._ends.get(event.end)
        if end is None:
            return []
        match event:
            case ChannelWrote():
                end.stream.put(event.items)
            case ChannelSlowed():
                end.stream.open = not event.slow
                end.excess_bytes = 0
            case ChannelFinished():
                end.finished = True
                end.stream.open = True  # Whatever still comes is dropped.
        return self._pump(end, now)

    def _pump(self, end: _End, now: float) -> list[Effect]:
        """Send what is due, if the other end may have it, and set the next deadline."""
        if reason := self._void(end, now):
            self.counts["channels ended, not allowed"] += 1
            return self._forget(end, reason)
        effects: list[Effect] = []
        if end.is_opener and end.beat_at <= now:
            effects += self._beat(end, now)
        if end.heard:
            effects += [Send(end.peer, batch) for batch in end.stream.due(now)]
        if end.finished and not end.stream.waiting:
            return effects + self._tell_end(end, "", now)
        waiting = end.stream.waiting_bytes
        paused = waiting > (RESUME_BYTES if end.paused else WINDOW_BYTES)
        if paused != end.paused:
            end.paused = paused
            effects.append(PauseChannel(end.number, paused))
        self._wait(end)
        return effects

    def _void(self, end: _End, now: float) -> str:
        """Return why the other end may have nothing more, if so."""
        found = self._roster.recall(end.peer, now)
        if isinstance(found, str):
            return found
        if end.is_task and not end.is_opener:
            return self._no_calls(found, end.asked.attempt)
        return ""

    def _beat(self, end: _End, now: float) -> list[Effect]:
        """Ask for a word, or once more to be opened."""
        if end.heard:
            end.beat_at = now + BEAT_S
            end.stream.ask()
            return []
        end.beat_at = now + OPEN_AGAIN.pause_s(end.tries)
        end.tries += 1
        return [Send(end.peer, end.asked)]

    def _wait(self, end: _End) -> None:
        due = [end.gives_up_at]
        if end.is_opener:
            due.append(end.beat_at)
        if end.heard and (at := end.stream.next_deadline()) is not None:
            due.append(at)
        self._due.set(end.number, min(due))

    def _tell_end(self, end: _End, reason: str, now: float) -> list[Effect]:
        """Forget an end that the host does not need, and tell the other one."""
        self._remove(end)
        if isinstance(self._roster.recall(end.peer, now), str):
            return []
        channel, is_opener = end.asked.channel, end.is_opener
        return [_end_of(end.peer, channel, reason, by_opener=is_opener)]

    def _forget(self, end: _End, reason: str) -> list[Effect]:
        """Forget an end that is of no more use, and tell the host if it cares."""
        self._remove(end)
        return [] if end.finished else [EndChannel(end.number, reason)]

    def _remove(self, end: _End) -> None:
        del self._ends[end.number]
        del self._numbers[end.key]
        self._due.drop(end.number)

    # Links and time.

    def _on_linked(self, peer: NodeId, now: float) -> list[Effect]:
        """Send again what may have been lost with the last link."""
        for end in self._ends_to(peer):
            # A link alone is no word: to one who was revoked, links come and go.
            end.gives_up_at = max(end.gives_up_at, end.heard_at + SILENT_S)
            end.stream.hasten(now)
            if end.is_opener:
                end.beat_at = now
        return self._pump_all(peer, now)

    def _on_unlinked(self, peer: NodeId, now: float) -> list[Effect]:
        for end in self._ends_to(peer):
            end.gives_up_at = min(end.gives_up_at, now + UNLINKED_S)
        return self._pump_all(peer, now)

    def _pump_all(self, peer: NodeId, now: float) -> list[Effect]:
        return [
            effect for end in self._ends_to(peer) for effect in self._pump(end, now)
        ]

    def _ends_to(self, peer: NodeId) -> list[_End]:
        return [end for end in self._ends.values() if end.peer == peer]

    def _on_deadline(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for number in self._due.pop_due(now):
            end = self._ends.get(number)
            if end is None:
                continue
            if end.gives_up_at <= now:
                self.counts["channels ended, silent"] += 1
                effects += self._forget(end, _silence(end))
            else:
                effects += self._pump(end, now)
        return effects


def _end_of(peer: NodeId, channel: ChannelId, reason: str, *, by_opener: bool) -> Send:
    return Send(peer, ChannelEnd(channel=channel, by_opener=by_opener, reason=reason))


def _silence(end: _End) -> str:
    if end.heard:
        return "the link to the other node broke"
    return "it does not answer, or its version knows no channels"
