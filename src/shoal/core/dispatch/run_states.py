"""One attempt of a task at a worker: its states, and every way between them.

Theory of operation. A scheduler makes a `TaskRun` when it assigns a task to a lease,
and drops it when the attempt has ended or a later one supersedes it. As long as it is
in the book the run is *live*: a report of it is accepted. `TRANSITIONS` is the only
place that says how a run changes; `TaskRun.move` is the only thing that changes it.

    queued   sent ahead to a lease on which another attempt runs before it
    sent     first on its lease; the worker has not said yet that it started
    started  the worker said so
    unheard  its worker is lost, and never said that it started
    silent   its worker is lost, and had said so
    over     no longer live: whatever is said of it changes nothing

A lost run may be blamed for the loss, and then counts as a crash of its task until it
is found: `unheard-blamed` and `silent-blamed`.

    sent --queue--> queued --front--> sent --start--> started
    sent --lose--> unheard --blame--> unheard-blamed
    started --lose--> silent --blame--> silent-blamed
    lost in any way --start--> started
    unheard, blamed or not --return--> sent
    any --end--> over

A lost worker may come back with the run: `start` if it runs there, `return` if the
lease is there and empty. `hear` is the word, come late, that a run started whose lease
is gone: it proves nothing about now, but the run will not be sent again.

Nothing here is journalled. A restart replays assignments as `sent`, and workers tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from shoal.model.ids import Attempt, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.resources import Allocation

if TYPE_CHECKING:
    from shoal.model.job import Job, Task

RunState: TypeAlias = Literal[
    "queued",
    "sent",
    "started",
    "unheard",
    "silent",
    "unheard-blamed",
    "silent-blamed",
    "over",
]
RunEvent: TypeAlias = Literal[
    "queue", "front", "start", "hear", "lose", "blame", "return", "end"
]

TRANSITIONS: Final[dict[tuple[RunState, RunEvent], RunState]] = {
    ("sent", "queue"): "queued",
    # Nothing is before it on its lease any more.
    ("queued", "front"): "sent",
    ("sent", "front"): "sent",
    ("started", "front"): "started",
    ("unheard", "front"): "unheard",
    ("silent", "front"): "silent",
    ("unheard-blamed", "front"): "unheard-blamed",
    ("silent-blamed", "front"): "silent-blamed",
    # Its worker has it, and runs it.
    ("queued", "start"): "started",
    ("sent", "start"): "started",
    ("started", "start"): "started",
    ("unheard", "start"): "started",
    ("silent", "start"): "started",
    ("unheard-blamed", "start"): "started",
    ("silent-blamed", "start"): "started",
    # Its worker had started it before the lease was gone.
    ("queued", "hear"): "started",
    ("sent", "hear"): "started",
    ("started", "hear"): "started",
    ("unheard", "hear"): "silent",
    ("silent", "hear"): "silent",
    ("unheard-blamed", "hear"): "silent-blamed",
    ("silent-blamed", "hear"): "silent-blamed",
    # Its worker is lost, and perhaps because of it.
    ("sent", "lose"): "unheard",
    ("started", "lose"): "silent",
    ("unheard", "blame"): "unheard-blamed",
    ("silent", "blame"): "silent-blamed",
    # Its worker is back with the lease, and never got the assignment.
    ("unheard", "return"): "sent",
    ("unheard-blamed", "return"): "sent",
    ("queued", "end"): "over",
    ("sent", "end"): "over",
    ("started", "end"): "over",
    ("unheard", "end"): "over",
    ("silent", "end"): "over",
    ("unheard-blamed", "end"): "over",
    ("silent-blamed", "end"): "over",
}

_STARTED: Final = frozenset({"started", "silent", "silent-blamed"})
_LOST: Final = frozenset({"unheard", "silent", "unheard-blamed", "silent-blamed"})
_BLAMED: Final = frozenset({"unheard-blamed", "silent-blamed"})


class TaskRun(msgspec.Struct, kw_only=True):
    """One live attempt of a task: where it runs, and its state."""

    task: TaskId
    attempt: Attempt
    worker: NodeId
    lease: LeaseId
    profile: int = 0
    owner: OwnerId = OwnerId("")  # of the worker, if results are verified
    gang: tuple[NodeId, ...] = ()  # where each rank runs, if it is one of a gang
    since: float = 0.0  # when it was assigned, or came to the front of its lease
    allocation: Allocation = Allocation()  # known once it has started
    state: RunState = "sent"
    metered_at: float | None = None  # its time was counted up to here; None: no start
    start_s: float = 0.0  # from its assignment until it started, once it has
    preempted: str | None = None  # why, if its worker said so before all of its output

    @property
    def queued(self) -> bool:
        """Whether it waits behind another attempt on its lease."""
        return self.state == "queued"

    @property
    def started(self) -> bool:
        """Whether its worker has said that it started."""
        return self.state in _STARTED

    @property
    def has_begun(self) -> bool:
        """Whether it ever started, as far as is known; that stays true when it ends."""
        return self.metered_at is not None

    @property
    def lost(self) -> bool:
        """Whether its worker is lost, for now or for good."""
        return self.state in _LOST

    @property
    def blamed(self) -> bool:
        """Whether it counts as a crash of its task while it is lost."""
        return self.state in _BLAMED

    def may(self, event: RunEvent) -> bool:
        """Whether the table allows an event now. Peers may cause it at any time."""
        return (self.state, event) in TRANSITIONS

    def move(self, event: RunEvent, now: float) -> None:
        """Go to the next state. An event that the table does not allow is our bug."""
        after = TRANSITIONS.get((self.state, event))
        assert after is not None, f"{event} of {self.attempt}, which is {self.state}"
        if self.state == "queued" and after != "over":
            self.since = now  # It begins now, not when it was sent ahead.
        self.state = after
        if self.started and not self.has_begun:
            self.metered_at = now
            self.start_s = now - self.since


class EndedRun(NamedTuple):
    """An attempt that is over, and what it was of: the book may forget these."""

    run: TaskRun
    task: Task
    job: Job
