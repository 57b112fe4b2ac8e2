"""Print events in a world, one readable line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, cast, final

from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Exited,
    Finished,
    Incarnated,
    Returned,
    Submitted,
)
from shoal.core.events import (
    Answer,
    Booted,
    CancelRequested,
    DeadlineReached,
    DrainRequested,
    Effect,
    Event,
    JobSubmitted,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Publish,
    Record,
    Send,
    StartTask,
    StopTask,
    TaskEnded,
)
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.messages import (
    Announcement,
    AnyMessage,
    Commit,
    Committed,
    Occupied,
    Offer,
    Outcome,
    Preemption,
    Want,
    Withdrawal,
)
from shoal.sim.agenda import Agenda
from shoal.sim.node.host import SimHost

MILESTONES: Final = (
    Announcement,
    Offer,
    Commit,
    Committed,
    Preemption,
    Withdrawal,
)
"""Messages that the short form shows when sent."""

FIELDS: Final = (
    "request",
    "lease",
    "leases",
    "gone",
    "attempt",
    "attempts",
    "count",
    "outcome",
    "wants",
    "seq",
    "grace_s",
    "reason",
)

Printer = Callable[[str], None]


@final
class Timeline:
    """A tap that prints all events, or only major ones without `verbose`."""

    def __init__(self, agenda: Agenda, printer: Printer, *, verbose: bool) -> None:
        self._agenda = agenda
        self._print = printer
        self._verbose = verbose

    def tap(self, host: SimHost, event: Event, effects: list[Effect]) -> None:
        """Print an event of a node and the resulting effects."""
        if self._verbose:
            self._line(host.id, f"<- {describe_event(event)}")
            for effect in effects:
                self._line(host.id, f"     {describe_effect(effect)}")
            return
        if text := _turning_event(event):
            self._line(host.id, text)
        for effect in effects:
            for text in _turning_effect(effect):
                self._line(host.id, text)

    def _line(self, node: NodeId, text: str) -> None:
        self._print(f"{self._agenda.now:9.3f}  {node:<7} {text}")


def describe(message: AnyMessage) -> str:
    """Describe a message on one line: its type and identifying fields."""
    parts = [type(message).__name__]
    for name in FIELDS:
        value = getattr(message, name, None)
        if value not in (None, "", ()):
            parts.append(f"{name}={_short(value)}")
    return " ".join(parts)


def describe_event(event: Event) -> str:
    """Describe an event on one line."""
    match event:
        case MessageReceived():
            return f"{event.peer}: {describe(event.message)}"
        case PeerConnected() | PeerLost():
            return f"{type(event).__name__} {event.peer}"
        case TaskEnded():
            return f"TaskEnded {event.attempt} {_short(event.outcome)}"
        case JobSubmitted():
            return f"JobSubmitted {event.job.id} token={event.token}"
        case CancelRequested():
            return f"CancelRequested {event.task or event.job} token={event.token}"
        case Booted() | DeadlineReached():
            return type(event).__name__
        case _:
            return repr(event)


def describe_effect(effect: Effect) -> str:
    """Describe an effect on one line."""
    match effect:
        case Send():
            return f"-> {effect.peer}: {describe(effect.message)}"
        case Publish():
            return f"-> all: {describe(effect.message)}"
        case Record():
            kind = "Record" if effect.durable else "Record, soon"
            return f"{kind}: {_short(effect.entry)}"
        case StartTask():
            return f"StartTask {effect.task.id} {effect.attempt} on {effect.lease}"
        case StopTask():
            return f"StopTask {effect.attempt} grace {effect.grace_s:g} s"
        case Answer():
            return f"Answer {effect.token} {effect.job} {effect.refused or 'yes'}"
        case _:
            return repr(effect)


def _turning_event(event: Event) -> str:
    match event:
        case Booted() | DrainRequested():
            return describe_event(event)
        case JobSubmitted() | CancelRequested() | TaskEnded() | PeerLost():
            return describe_event(event)
        case _:
            return ""


def _turning_effect(effect: Effect) -> Iterator[str]:
    match effect:
        case Send(message=message) | Publish(message=message):
            if isinstance(message, MILESTONES):
                yield describe_effect(effect)
        case Record() | StartTask() | StopTask() | Answer():
            yield describe_effect(effect)
        case _:
            pass


def _short(value: object) -> str:
    match value:
        case tuple():
            items = [_short(item) for item in cast("tuple[object, ...]", value)]
            more = f" and {len(items) - 4} more" if len(items) > 4 else ""
            return f"({', '.join(items[:4])}{more})"
        case Attempt() | str() | int():
            return str(value)
        case float():
            return f"{value:.3g}"
        case Occupied():
            return f"{value.lease}:{value.attempt}"
        case Want():
            return f"{value.count} tasks"
        case Outcome():
            return f"{value.kind} {'' if value.exit_code is None else value.exit_code}"
        case _:
            return _short_entry(value)


def _short_entry(value: object) -> str:
    match value:
        case Incarnated():
            return f"generation {value.generation}"
        case Submitted():
            return f"submitted {value.job.id}"
        case Assigned():
            return f"assigned {_short(value.places)}"
        case AttemptPlace():
            return f"{value.task} as {value.attempt} to {value.lease}"
        case Exited():
            return f"exited {value.task} {value.attempt}"
        case Returned():
            counts = f"failures {value.failures} crashes {value.crashes}"
            return f"returned {value.task} {value.attempt} {counts} {value.reason}"
        case Finished():
            return f"finished {value.task} {value.state} {value.reason}"
        case _:
            return repr(value)
