"""The allocator: asks engines for workers while demand lasts that nobody can meet.

Theory of operation. A user allows this node to submit jobs to an engine (Slurm, ...)
on terms: an *allocation*. Each such job is a *pilot*: a worker that joins the shoal,
takes what ends in its time (`core.lending.lifetime`), and leaves when idle. A pilot
passes through these states:

    sent     it is on disk, and `SubmitPilot` has left; nobody knows if it arrived
    queued   the engine has it (`PilotSubmitted`, or a poll finds it by its number)
    started  a poll says that it runs; it has `JOIN_S` to join
    joined   its inventory came, with the label that tells its number

and is gone when a poll, asked after it was known to be there, no longer names it. What
a poll names and this node does not know is cancelled: a journal was lost, or a user
removed the allocation. An engine that does not answer changes nothing.

Twice a second demand is compared with what is there (`demand`). A pilot is submitted if

- some demand fits a pilot: nothing known of its shape forbids it. The shape is learned
  from the first pilot that joins, so of an unknown shape only one is sent;
- neither pilots that are on their way, nor idle ones, nor those that joined too short
  ago to show in the demand, would do for it: never more is asked for than is wanted;
- fewer than `backlog` are on their way, and fewer than `pilots_max` there in all.
  `Record` comes before `SubmitPilot`, so a crash never makes it more.

Pilots that are not needed leave when idle; those that still wait are cancelled when
there was no demand for as long. Before anything is submitted, the engine is asked
whether it would take a pilot (`TryAllocation`): an allocation that it refuses is
paused, and so is one whose pilots are refused for good, or after `FAILURES_MAX` in a
row that did not join. Other refusals are tried again, ever later. A paused allocation
submits nothing until it is resumed; what is there already goes on. A removed one is
forgotten when its pilots are gone.

Durable is all of `AllocationKept`; bounded are allocations, pilots, notes and heard
demand. Times are of this life: after a restart, waiting begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.admission.events import InvitationWithdrawn
from shoal.core.allocation.demand import DemandBook, slots
from shoal.core.allocation.events import (
    AllocationAdded,
    AllocationChanged,
    AllocationTried,
    AnswerAllocation,
    CancelPilot,
    PilotRefused,
    PilotsPolled,
    PilotSubmitted,
    PollPilots,
    SubmitPilot,
    TryAllocation,
)
from shoal.core.allocation.records import (
    AllocationKept,
    AllocationTerms,
    Note,
    Pilot,
)
from shoal.core.deadlines import Deadlines
from shoal.core.events import (
    Booted,
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Record,
    Send,
    Tell,
)
from shoal.core.lending.lifetime import longest_taken_s
from shoal.core.machine import Mount
from shoal.model.backoff import Backoff
from shoal.model.ids import NodeId, RequestId
from shoal.protocol.messages import (
    Announcement,
    Inquiry,
    Inventory,
    InventoryChanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from shoal.core.allocation.demand import UnmetDemand
    from shoal.core.durability.journal import Entry
    from shoal.core.membership.roster import Roster
    from shoal.model.resources import Capacity, Profile
    from shoal.protocol.messages import Load

LOOK_S: Final = 0.5
POLL_S: Final = 2.0  # while some pilot is on its way
POLL_JOINED_S: Final = 10.0
POLL_LOST_S: Final = 60.0  # a poll that was not answered for so long never will be
SENT_S: Final = 60.0  # a pilot that no poll has found by then was never submitted
JOIN_S: Final = 180.0  # from its start
RETURN_S: Final = 20.0  # after a restart, workers and their tasks are heard of again
SETTLE_S: Final = 3.0  # until demand shows that a worker has come
AGAIN: Final = Backoff(5.0, 300.0)  # between two pilots, after some failed
FAILURES_MAX: Final = 3
ALLOCATIONS_MAX: Final = 16
PILOTS_MAX: Final = 256
NOTES_MAX: Final = 50
LINKED_MAX: Final = 4_096
LABEL: Final = "pilot"
"""The label by which a worker tells which pilot it is."""

BY_USER: Final = "by its user"


class _Times(msgspec.Struct):
    """What is known of one pilot in this life only."""

    known_at: float  # since when a poll must name it
    joined_at: float = 0.0
    idle: bool = False  # it could take tasks and has none, as it said last
    longest_s: int | None = None  # that it takes, as it said last


class _Live(msgspec.Struct):
    """What is known of one allocation in this life only."""

    polled: int = 0  # the last question
    asked_at: float = 0.0
    next_poll_at: float = 0.0
    open: bool = False  # it was not answered yet
    silent: bool = False  # the last answer was that there is none
    next_at: float = 0.0  # nothing is submitted before
    wanted_at: float = 0.0  # when there was last demand for it
    token: int | None = None  # of the user who added or resumed it
    trying: bool = False
    pilots: dict[int, _Times] = {}


@final
class Allocator:
    """Decides how many workers to ask engines for."""

    mount = Mount(
        takes={
            Announcement: "scheduler",
            Inventory: "worker",
            InventoryChanged: "worker",
        },
        hears=(
            *(AllocationAdded, AllocationChanged, AllocationTried),
            *(PilotSubmitted, PilotRefused, PilotsPolled),
        ),
    )

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        *,
        journal: Iterable[Entry] = (),
        own_demand: Callable[[], Mapping[Profile, int]],
        now: float = 0.0,
    ) -> None:
        """Go on from the journal; `own_demand` is what this node's own jobs lack."""
        self._node, self._roster = node, roster
        self._own_demand = own_demand
        self.known: dict[str, AllocationKept] = {}  # at most ALLOCATIONS_MAX
        for entry in journal:
            if isinstance(entry, AllocationKept):
                self.known[entry.terms.name] = entry
        self.known = {n: e for n, e in self.known.items() if not _is_over(e)}
        self._live = {name: _Live(wanted_at=now) for name in self.known}
        for name, kept in self.known.items():
            back_at = now + RETURN_S
            times = {p.number: _Times(now, back_at) for p in kept.pilots}
            self._live[name].pilots = times
        self._heard = DemandBook()
        self._linked: dict[NodeId, None] = {}  # workers of ours; at most LINKED_MAX
        self._due: Deadlines[str] = Deadlines()

    def entries(self) -> Iterator[Entry]:
        """Yield entries that stand for all entries so far."""
        yield from self.known.values()

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case MessageReceived():
                return self._on_message(event, now)
            case PeerConnected():
                return self._on_linked(event.peer, now)
            case PeerLost():
                self._on_lost(event.peer)
            case Booted():
                return self._on_booted(now)
            case DeadlineReached():
                return self._look(now) if self._due.pop_due(now) else []
            case AllocationAdded():
                return self._on_added(event, now)
            case AllocationChanged():
                return self._on_changed(event, now)
            case AllocationTried():
                return self._on_tried(event, now)
            case PilotSubmitted():
                return self._on_submitted(event, now)
            case PilotRefused():
                return self._on_refused(event, now)
            case PilotsPolled():
                return self._on_polled(event, now)
            case _:
                pass  # A fact for another machine of this node.
        return []

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._due.next()

    # Users.

    def _on_added(self, event: AllocationAdded, now: float) -> list[Effect]:
        terms, name = event.terms, event.terms.name
        if flaw := self._flaw(terms):
            return [AnswerAllocation(event.token, flaw)]
        self.known[name] = AllocationKept(terms=terms)
        self._live[name] = _Live(token=event.token, wanted_at=now)
        self._due.set_earlier("look", now + LOOK_S)
        return [self._note(name, "added", now), *self._try(name)]

    def _flaw(self, terms: AllocationTerms) -> str:
        if terms.name in self.known:
            return f"there is an allocation '{terms.name}' already"
        if len(self.known) >= ALLOCATIONS_MAX:
            return f"there are {ALLOCATIONS_MAX} allocations, and no more are kept"
        if not 1 <= terms.backlog <= terms.pilots_max <= PILOTS_MAX:
            return f"--backlog and --max must be between 1 and {PILOTS_MAX}, in order"
        if longest_taken_s(terms.time_limit_s) < 1 or terms.idle_s <= 0.0:
            return "the time is too short for any task"
        return ""

    def _try(self, name: str) -> list[Effect]:
        self._live[name].trying = True
        return [TryAllocation(self.known[name].terms)]

    def _on_changed(self, event: AllocationChanged, now: float) -> list[Effect]:
        name, kept = event.name, self.known.get(event.name)
        if kept is None or kept.removed:
            why = f"there is no allocation '{name}'"
            return [AnswerAllocation(event.token, why)]
        if event.change == "resume":
            self._live[name].token = event.token
            self._live[name].next_at = now
            self._set(name, paused="", failures=0, tried=False)
            return [self._note(name, "resumed", now), *self._try(name)]
        answer = AnswerAllocation(event.token)
        if event.change == "pause":
            return [*self._pause(name, BY_USER, now), answer]
        self._set(name, removed=True)
        effects: list[Effect] = [self._note(name, "removed", now)]
        effects += self._cancel(name, list(self.known[name].pilots))
        return [*effects, *self._forget(name), answer]

    def _on_tried(self, event: AllocationTried, now: float) -> list[Effect]:
        name, live = event.name, self._live.get(event.name)
        if live is None or not live.trying:
            return []
        live.trying = False
        token, live.token = live.token, None
        answer = [] if token is None else [AnswerAllocation(token, event.refused)]
        if event.refused:
            return [*self._pause(name, event.refused, now), *answer]
        self._set(name, tried=True)
        return [self._note(name, "the engine would take it", now), *answer]

    def _pause(self, name: str, why: str, now: float) -> list[Effect]:
        self._set(name, paused=why)
        return [self._note(name, f"paused: {why}", now)]

    # Workers and demand.

    def _on_message(self, event: MessageReceived, now: float) -> list[Effect]:
        if not self.known or not self._is_ours(event.peer, now):
            return []
        match event.message:
            case Announcement() as announcement:
                if announcement.scheduler == event.peer != self._node:
                    self._heard.hear(event.peer, announcement, now)
            case Inventory() as told:
                return self._on_inventory(event.peer, told, now)
            case InventoryChanged() as told:
                self._on_load(event.peer, told.load)
            case _:
                pass  # The rack hands on nothing else.
        return []

    def _is_ours(self, peer: NodeId, now: float) -> bool:
        """Whether a member is of the owner whose node this is."""
        if peer == self._node:
            return True
        mine, theirs = self._roster.get(self._node, now), self._roster.get(peer, now)
        return mine is not None and theirs is not None and mine.owner == theirs.owner

    def _on_linked(self, peer: NodeId, now: float) -> list[Effect]:
        """Ask a worker what it has: it may be a pilot."""
        if not self._is_ours(peer, now) or peer == self._node:
            return []
        self._linked[peer] = None
        if len(self._linked) > LINKED_MAX:
            del self._linked[next(iter(self._linked))]
        return [self._ask(peer)] if self.known else []

    def _ask(self, peer: NodeId) -> Effect:
        return Send(peer, Inquiry(request=RequestId(f"{self._node}/pilot")))

    def _on_inventory(self, peer: NodeId, told: Inventory, now: float) -> list[Effect]:
        label = dict(told.capacity.labels).get(LABEL, "")
        name, _, digits = label.rpartition("/")
        kept = self.known.get(name)
        number = int(digits) if digits.isdecimal() and len(digits) < 10 else 0
        pilot = None if kept is None else _pilot(kept, number)
        if kept is None or pilot is None:
            return []
        if pilot.node not in {"", peer}:
            return []  # Somebody says so of itself; the first one counts.
        self._live[name].pilots[number].longest_s = told.capacity.longest_s
        if pilot.state == "joined":
            self._on_load(peer, told.load)
            return []
        self._live[name].pilots[number].joined_at = now
        self._put(name, msgspec.structs.replace(pilot, state="joined", node=peer))
        self._set(name, failures=0, shape=_shape(told.capacity))
        self._on_load(peer, told.load)
        return [self._note(name, f"pilot {number} has joined", now)]

    def _on_load(self, peer: NodeId, load: Load) -> None:
        for _, times in self._pilots_on(peer):
            times.idle = load.active == 0 and not load.draining

    def _on_lost(self, peer: NodeId) -> None:
        """Count on a worker no more that is out of reach, and ask its engine."""
        self._linked.pop(peer, None)
        self._heard.forget(peer)
        for live, times in self._pilots_on(peer):
            times.idle = False
            live.next_poll_at = 0.0

    def _pilots_on(self, peer: NodeId) -> Iterator[tuple[_Live, _Times]]:
        for name, kept in self.known.items():
            for pilot in kept.pilots:
                if pilot.node == peer:
                    yield self._live[name], self._live[name].pilots[pilot.number]

    # Engines.

    def _on_submitted(self, event: PilotSubmitted, now: float) -> list[Effect]:
        name, kept = event.name, self.known.get(event.name)
        pilot = None if kept is None else _pilot(kept, event.number)
        if kept is None or pilot is None:
            return []  # A poll finds it, if this is not too late for that.
        state = "queued" if pilot.state == "sent" else pilot.state
        changes = {"state": state, "native": event.native, "digest": event.digest}
        self._put(name, msgspec.structs.replace(pilot, **changes))
        self._live[name].pilots[event.number].known_at = now
        said = self._note(name, f"pilot {event.number} is {event.native}", now)
        if not kept.removed and not pilot.cancelled:
            return [said]
        return [said, *self._cancel(name, [_known(self.known[name], pilot)])]

    def _on_refused(self, event: PilotRefused, now: float) -> list[Effect]:
        name, kept = event.name, self.known.get(event.name)
        pilot = None if kept is None else _pilot(kept, event.number)
        if kept is None or pilot is None or pilot.state != "sent":
            return []
        what = f"pilot {event.number} was refused: {event.reason}"
        effects = self._gone(name, pilot, what, now, failed=True)
        if event.final and name in self.known and not self.known[name].paused:
            effects += self._pause(name, event.reason, now)
        return effects

    def _on_polled(self, event: PilotsPolled, now: float) -> list[Effect]:
        name, live = event.name, self._live.get(event.name)
        if live is None or not live.open or event.poll != live.polled:
            return []
        live.open = False
        if event.trouble:
            was, live.silent = live.silent, True
            what = f"the engine does not answer: {event.trouble}"
            return [] if was else [self._note(name, what, now)]
        live.silent = False
        seen = {each.number: each for each in event.seen}
        effects: list[Effect] = [
            CancelPilot(self.known[name].terms, each.native)
            for each in event.seen
            if _pilot(self.known[name], each.number) is None
        ]
        for pilot in self.known[name].pilots:
            found, times = seen.get(pilot.number), live.pilots[pilot.number]
            if found is not None:
                effects += self._on_seen(
                    name, pilot, found.native, now, running=found.running
                )
            elif pilot.state != "sent" and live.asked_at > times.known_at:
                effects += self._ended(name, pilot, now)
            elif pilot.state == "sent" and now - times.known_at > SENT_S:
                what = f"pilot {pilot.number} did not reach the engine"
                effects += self._gone(name, pilot, what, now, failed=True)
        return effects + self._forget(name)

    def _on_seen(
        self, name: str, pilot: Pilot, native: str, now: float, *, running: bool
    ) -> list[Effect]:
        times, effects = self._live[name].pilots[pilot.number], list[Effect]()
        if pilot.cancelled or self.known[name].removed:
            return self._cancel(name, [msgspec.structs.replace(pilot, native=native)])
        if pilot.state in {"sent", "queued"}:
            state = "started" if running else "queued"
            if state != pilot.state:
                times.known_at = now
                found = msgspec.structs.replace(pilot, state=state, native=native)
                self._put(name, found)
                effects = [self._note(name, f"pilot {pilot.number} is {state}", now)]
        elif pilot.state == "started" and now - times.known_at > JOIN_S:
            what = f"pilot {pilot.number} runs, and did not join in {JOIN_S:.0f} s"
            effects = self._failed(name, what, now)
            effects += self._cancel(name, [pilot])
        return effects

    def _ended(self, name: str, pilot: Pilot, now: float) -> list[Effect]:
        """Note that the engine no longer knows a pilot that it had."""
        failed = pilot.state != "joined" and not pilot.cancelled
        how = "ended before it joined" if failed else "is gone"
        what = f"pilot {pilot.number} {how}"
        return self._gone(name, pilot, what, now, failed=failed)

    def _gone(
        self, name: str, pilot: Pilot, what: str, now: float, *, failed: bool
    ) -> list[Effect]:
        """Forget a pilot; nobody can use its invitation any more."""
        left = tuple(p for p in self.known[name].pilots if p.number != pilot.number)
        self._set(name, pilots=left)
        del self._live[name].pilots[pilot.number]
        said = (
            self._failed(name, what, now) if failed else [self._note(name, what, now)]
        )
        void = [Tell(InvitationWithdrawn(pilot.digest))] if pilot.digest else []
        return [*said, *void]

    def _failed(self, name: str, what: str, now: float) -> list[Effect]:
        """Count a pilot that did not become a worker; after some, try no more."""
        failures = self.known[name].failures + 1
        self._set(name, failures=failures)
        self._live[name].next_at = now + AGAIN.pause_s(failures - 1)
        effects: list[Effect] = [self._note(name, what, now)]
        if failures >= FAILURES_MAX and not self.known[name].paused:
            why = f"{failures} pilots in a row did not become workers; the last: {what}"
            effects += self._pause(name, why, now)
        return effects

    def _cancel(self, name: str, pilots: list[Pilot]) -> list[Effect]:
        """Cancel pilots; what the engine has not named yet, when it is named."""
        effects: list[Effect] = []
        for pilot in pilots:
            self._put(name, msgspec.structs.replace(pilot, cancelled=True))
            if pilot.native:
                effects.append(CancelPilot(self.known[name].terms, pilot.native))
        return [Record(self.known[name]), *effects]

    def _forget(self, name: str) -> list[Effect]:
        if not _is_over(self.known[name]):
            return []
        entry = self.known.pop(name)
        del self._live[name]
        return [Record(entry)]

    # The balance of demand and pilots.

    def _on_booted(self, now: float) -> list[Effect]:
        if not self.known:
            return []
        self._due.set("look", now + LOOK_S)
        untried = [n for n, e in self.known.items() if not (e.tried or e.paused)]
        return [effect for name in untried for effect in self._try(name)]

    def _look(self, now: float) -> list[Effect]:
        """Ask engines and workers what there is, and submit what is wanted."""
        if not self.known:
            return []
        self._due.set("look", now + LOOK_S)
        effects: list[Effect] = []
        if any(p.state == "started" for e in self.known.values() for p in e.pilots):
            known = {p.node for e in self.known.values() for p in e.pilots}
            effects += [self._ask(n) for n in self._linked if n not in known]
        unmet = self._heard.unmet(self._own_demand(), now)
        for name in sorted(self.known):
            effects += self._poll(name, now)
            self._cover(name, unmet, now)
            if any(self._slots(name, demand) for demand in unmet):
                self._live[name].wanted_at = now
                submitted = self._submit(name, now)
                if submitted:
                    self._take(name, unmet)
                effects += submitted
            else:
                effects += self._shed(name, now)
        return effects

    def _poll(self, name: str, now: float) -> list[Effect]:
        kept, live = self.known[name], self._live[name]
        if not kept.pilots:
            return []
        is_lost = now - live.asked_at > POLL_LOST_S
        if now < live.next_poll_at or (live.open and not is_lost):
            return []
        on_its_way = any(p.state != "joined" or p.cancelled for p in kept.pilots)
        live.next_poll_at = now + (POLL_S if on_its_way else POLL_JOINED_S)
        live.polled, live.asked_at, live.open = live.polled + 1, now, True
        return [PollPilots(kept.terms, live.polled)]

    def _slots(self, name: str, demand: UnmetDemand) -> int:
        """Return how many tasks of a demand one pilot could run; all, if unknown."""
        kept, profile = self.known[name], demand.profile
        if profile.longest_s > longest_taken_s(kept.terms.time_limit_s):
            return 0
        if kept.shape is None:
            return 1_000_000
        return slots(profile, kept.shape)

    def _cover(self, name: str, unmet: list[UnmetDemand], now: float) -> None:
        """Take off what pilots will do that are there, or on their way."""
        for pilot in self.known[name].pilots:
            times = self._live[name].pilots[pilot.number]
            if pilot.cancelled:
                continue
            coming = pilot.state != "joined" or times.idle
            done = [
                demand
                for demand in unmet
                if (coming or demand.told_at < times.joined_at + SETTLE_S)
                and (
                    times.longest_s is None
                    or demand.profile.longest_s <= times.longest_s
                )
            ]
            self._take(name, done)
        unmet[:] = [demand for demand in unmet if demand.count > 0.0]

    def _take(self, name: str, unmet: Iterable[UnmetDemand]) -> None:
        """Take off what one pilot can do at once."""
        room = 1.0
        for demand in unmet:
            each = self._slots(name, demand)
            if each and room > 0.0:
                part = min(room, demand.count / each)
                demand.count -= part * each
                demand.count = 0.0 if demand.count < 1e-6 else demand.count
                room -= part

    def _submit(self, name: str, now: float) -> list[Effect]:
        if not self._may_submit(name, now):
            return []
        kept, live = self.known[name], self._live[name]
        number = kept.numbered + 1
        live.pilots[number] = _Times(now)
        live.next_poll_at = min(live.next_poll_at, now + POLL_S)
        self._set(name, numbered=number, pilots=(*kept.pilots, Pilot(number=number)))
        said = self._note(name, f"pilot {number} is sent", now)
        return [said, SubmitPilot(kept.terms, number)]

    def _may_submit(self, name: str, now: float) -> bool:
        kept = self.known[name]
        if not kept.tried or kept.paused or kept.removed:
            return False
        on_their_way = sum(p.state != "joined" for p in kept.pilots)
        return (
            now >= self._live[name].next_at
            and on_their_way < kept.terms.backlog
            and len(kept.pilots) < kept.terms.pilots_max
        )

    def _shed(self, name: str, now: float) -> list[Effect]:
        """Cancel what still waits, if nobody has wanted it for long."""
        kept = self.known[name]
        if now - self._live[name].wanted_at < kept.terms.idle_s:
            return []
        waits = [
            p for p in kept.pilots if p.state in {"sent", "queued"} and not p.cancelled
        ]
        if not waits:
            return []
        said = self._note(name, "nobody wants what waits: it is cancelled", now)
        return [said, *self._cancel(name, waits)]

    # What is kept.

    def _set(self, name: str, **changes: object) -> None:
        self.known[name] = msgspec.structs.replace(self.known[name], **changes)

    def _put(self, name: str, pilot: Pilot) -> None:
        pilots = self.known[name].pilots
        changed = (pilot if p.number == pilot.number else p for p in pilots)
        self._set(name, pilots=tuple(changed))

    def _note(self, name: str, text: str, now: float) -> Effect:
        """Add a line to the log; all that has changed is kept with it."""
        note = Note(self._roster.wall_s(now), text)
        self._set(name, notes=(*self.known[name].notes, note)[-NOTES_MAX:])
        return Record(self.known[name])


def _is_over(kept: AllocationKept) -> bool:
    return kept.removed and not kept.pilots


def _pilot(kept: AllocationKept, number: int) -> Pilot | None:
    return next((p for p in kept.pilots if p.number == number), None)


def _known(kept: AllocationKept, pilot: Pilot) -> Pilot:
    found = _pilot(kept, pilot.number)
    assert found is not None
    return found


def _shape(capacity: Capacity) -> Capacity:
    """Return what the next pilot will have, from what one had when it came."""
    labels = tuple(each for each in capacity.labels if each[0] != LABEL)
    return msgspec.structs.replace(capacity, labels=labels)
