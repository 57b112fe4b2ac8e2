"""When the allocator asks an engine for a worker, and when it asks no more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.core.admission.events import InvitationWithdrawn
from shoal.core.allocation.allocator import FAILURES_MAX, JOIN_S, LABEL, Allocator
from shoal.core.allocation.demand import slots
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
    SeenPilot,
    SubmitPilot,
    TryAllocation,
)
from shoal.core.allocation.records import AllocationKept, AllocationTerms
from shoal.core.durability.journal import Entry, decode, encode
from shoal.core.events import (
    Booted,
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    Record,
    Tell,
)
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId, OwnerId
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.protocol.messages import Announcement, Inventory, Load, Want
from shoal.sim.node import trust

ANN, BOB = OwnerId("ann"), OwnerId("bob")
HERE, PILOT, NEXT, OTHER, STRANGER = map(NodeId, ("s", "p", "q", "t", "x"))
CPU = Profile(cpu_milli=1_000)
TERMS = AllocationTerms(name="a", engine="slurm", pilots_max=3, idle_s=60.0)


class Story:
    """An allocator, and what it wanted of its host so far."""

    def __init__(self, journal: tuple[Entry, ...] = ()) -> None:
        self.now, self.said = 5_000.0, list[Effect]()
        self.wants: dict[Profile, int] = {}
        roster = Roster(trust.members(), trust.WALL_AT_START_S)
        for node, role, owner in (
            (HERE, "scheduler", ANN),
            (PILOT, "worker", ANN),
            (NEXT, "worker", ANN),
            (OTHER, "scheduler", ANN),
            (STRANGER, "scheduler", BOB),
        ):
            roster.meet(node, trust.grant(node, (role,), owner), 0.0)  # type: ignore[arg-type]
        self.machine = Allocator(
            HERE,
            roster,
            journal=journal,
            own_demand=lambda: self.wants,
            now=self.now,
        )
        self.tell(Booted())

    def tell(self, event: Event) -> list[Effect]:
        """Tell one fact; return what it leads to besides records."""
        said = self.machine.handle(event, self.now)
        self.said += said
        return [each for each in said if not isinstance(each, Record)]

    def add(self, terms: AllocationTerms = TERMS, refused: str = "") -> None:
        assert self.tell(AllocationAdded(1, terms)) == [TryAllocation(terms)]
        answer = self.tell(AllocationTried(terms.name, refused))
        assert answer == [AnswerAllocation(1, refused)]

    def wait(self, seconds: float) -> list[Any]:
        """Let time pass; return what that leads to besides records."""
        until, said = self.now + seconds, list[Effect]()
        while (due := self.machine.next_deadline()) is not None and due <= until:
            self.now = due
            said += self.tell(DeadlineReached())
        self.now = until
        return said

    def submits(self, seconds: float = 2.0) -> list[int]:
        return [e.number for e in self.wait(seconds) if isinstance(e, SubmitPilot)]

    def poll(self, *seen: SeenPilot) -> list[Effect]:
        self.wait(11.0)
        return self.tell(PilotsPolled("a", self.asked, seen))

    @property
    def asked(self) -> int:
        return [e.poll for e in self.said if isinstance(e, PollPilots)][-1]

    def joins(self, number: int, peer: NodeId = PILOT, active: int = 0) -> None:
        labels = ((LABEL, f"a/{number}"),)
        capacity = Capacity(cpu_milli=2_000, labels=labels, longest_s=3_000)
        load = Load(active=active)
        told = Inventory(epoch=1, seq=1, capacity=capacity, load=load)
        self.tell(MessageReceived(peer, told))

    @property
    def kept(self) -> AllocationKept:
        return self.machine.known["a"]


def test_nothing_is_submitted_that_nobody_wants_and_one_pilot_that_somebody_does() -> (
    None
):
    story = Story()
    story.add()

    assert story.submits(60.0) == []
    story.wants = {CPU: 50}
    assert story.submits(60.0) == [1]  # Of an unknown shape, and the backlog is 1.


def test_what_comes_is_counted_before_more_is_asked_for() -> None:
    story = Story()
    story.add(msgspec.structs.replace(TERMS, backlog=3))
    story.wants = {CPU: 1}

    assert story.submits(60.0) == [1]
    story.joins(1)  # It has no task yet.
    assert story.submits(60.0) == []
    story.joins(1, active=1)
    assert story.submits(60.0) == [2]


def test_a_submit_is_on_disk_before_it_leaves() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 1}
    story.wait(2.0)

    place = story.said.index(SubmitPilot(TERMS, 1))
    before = story.said[place - 1]
    assert isinstance(before, Record)
    assert isinstance(before.entry, AllocationKept)
    assert [p.number for p in before.entry.pilots] == [1]


def test_there_are_as_many_as_the_demand_needs_and_no_more_than_allowed() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 3}
    assert story.submits() == [1]
    story.tell(PilotSubmitted("a", 1, "17", b"digest"))
    story.joins(1, active=2)  # It has two CPUs, and both are taken.
    story.wants = {CPU: 1}
    story.wait(3.0)  # Until demand shows what it takes.
    assert story.kept.shape is not None
    assert story.submits(5.0) == []  # Number 2 went out in the wait above.
    assert [p.number for p in story.kept.pilots] == [1, 2]

    story.joins(2, NEXT, active=2)
    story.wants = {CPU: 500}
    story.wait(300.0)

    assert len(story.kept.pilots) == TERMS.pilots_max


@pytest.mark.parametrize(
    "profile",
    [
        Profile(cpu_milli=64_000),
        Profile(gpu=GpuNeed()),
        Profile(cpu_milli=1_000, longest_s=3_600),
        Profile(cpu_milli=1_000, labels=(("rack", "7"),)),
    ],
    ids=str,
)
def test_no_pilot_is_sent_for_what_none_could_run(profile: Profile) -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 1}
    story.wait(2.0)
    story.joins(1, active=1)

    story.wants = {profile: 9}

    assert story.submits(120.0) == []


def test_demand_of_the_same_owner_counts_until_it_is_overdue_and_no_strangers() -> None:
    story = Story()
    story.add()

    def announce(peer: NodeId) -> None:
        wants = (Want(CPU, 5),)
        announcement = Announcement(scheduler=peer, wants=wants)
        story.tell(MessageReceived(peer, announcement))

    announce(STRANGER)
    assert story.submits(60.0) == []
    announce(OTHER)
    assert story.submits() == [1]
    story.tell(PilotRefused("a", 1, "the controller is down"))
    assert story.submits(60.0) == []  # It has not said so again.


def test_refused_terms_are_answered_once_and_paused_until_resumed() -> None:
    story = Story()
    story.add(refused="invalid partition 'gpuu'")
    story.wants = {CPU: 5}
    assert story.submits(60.0) == []
    assert story.kept.paused == "invalid partition 'gpuu'"

    assert TryAllocation(TERMS) in story.tell(AllocationChanged(2, "a", "resume"))
    story.tell(AllocationTried("a"))

    assert story.submits() == [1]


def test_three_pilots_in_a_row_that_do_not_join_pause_it() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    while not story.kept.paused:
        story.wait(20.0)
        story.tell(PilotSubmitted("a", story.kept.numbered, "17"))
        story.poll()  # Asked before it was known.
        story.poll()

    assert "3 pilots in a row" in story.kept.paused
    assert story.kept.numbered == FAILURES_MAX
    assert story.submits(600.0) == []


def test_a_pilot_that_joins_makes_up_for_those_that_did_not() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    story.wait(2.0)
    story.tell(PilotRefused("a", 1, "busy"))
    assert story.kept.failures == 1
    assert story.submits(20.0) == [2]
    story.joins(2)

    assert story.kept.failures == 0


def test_a_pilot_that_runs_and_never_joins_is_cancelled() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    story.wait(2.0)
    story.tell(PilotSubmitted("a", 1, "17"))
    running = SeenPilot(1, "17", running=True)
    assert story.poll(running) == []
    story.wait(JOIN_S)

    assert CancelPilot(TERMS, "17") in story.poll(running)
    assert story.kept.failures == 1


def test_what_waits_is_cancelled_when_nobody_has_wanted_it_for_long() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    story.wait(2.0)
    story.tell(PilotSubmitted("a", 1, "17", b"digest"))
    story.wants = {}
    story.wait(TERMS.idle_s - 5.0)
    assert not story.kept.pilots[0].cancelled

    assert CancelPilot(TERMS, "17") in story.wait(10.0)
    assert Tell(InvitationWithdrawn(b"digest")) in story.poll()
    assert story.kept.failures == 0


def test_an_engine_that_is_silent_changes_nothing() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    story.wait(2.0)
    story.tell(PilotSubmitted("a", 1, "17"))
    story.wait(3.0)

    assert story.tell(PilotsPolled("a", story.asked, trouble="timed out")) == []
    assert [p.number for p in story.kept.pilots] == [1]


def test_a_poll_that_was_asked_before_a_pilot_was_known_does_not_end_it() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    story.wait(2.0)
    story.wait(4.0)
    story.tell(PilotSubmitted("a", 1, "17"))
    story.tell(PilotsPolled("a", story.asked))

    assert [p.native for p in story.kept.pilots] == ["17"]


def test_after_a_restart_a_poll_finds_what_was_sent_and_cancels_what_nobody_knows() -> (
    None
):
    before = Story()
    before.add()
    before.wants = {CPU: 5}
    before.wait(2.0)
    kept = tuple(e.entry for e in before.said if isinstance(e, Record))
    story = Story(tuple(decode(encode(each)[1]) for each in kept))
    story.wants = {CPU: 5}

    mine, lost = SeenPilot(1, "17", running=False), SeenPilot(9, "16", running=True)
    said = story.poll(mine, lost)

    assert said == [CancelPilot(TERMS, "16")]
    assert [(p.number, p.native) for p in story.kept.pilots] == [(1, "17")]
    assert story.submits(30.0) == []


def test_after_a_restart_what_waits_is_not_cancelled_before_jobs_are_heard_of() -> None:
    before = Story()
    before.add()
    before.wants = {CPU: 1}
    before.wait(2.0)
    before.tell(PilotSubmitted("a", 1, "17"))
    story = Story(tuple(e.entry for e in before.said if isinstance(e, Record)))

    assert CancelPilot(TERMS, "17") not in story.wait(TERMS.idle_s - 5.0)


def test_after_a_restart_workers_have_time_to_come_back() -> None:
    before = Story()
    before.add()
    before.wants = {CPU: 1}
    before.wait(2.0)
    before.joins(1, active=1)
    kept = tuple(e.entry for e in before.said if isinstance(e, Record))
    story = Story(kept)
    story.wants = {CPU: 1}  # The task that runs there, as far as is known.

    assert story.submits(15.0) == []
    assert story.submits(60.0) == [2]


def test_a_removed_allocation_is_forgotten_when_its_pilots_are_gone() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    story.wait(2.0)
    story.tell(PilotSubmitted("a", 1, "17"))

    said = story.tell(AllocationChanged(2, "a", "remove"))
    assert said == [CancelPilot(TERMS, "17"), AnswerAllocation(2)]
    story.poll()
    story.poll()

    assert story.machine.known == {}
    kept = tuple(e.entry for e in story.said if isinstance(e, Record))
    assert Story(kept).machine.known == {}


def test_who_only_claims_to_be_a_pilot_does_not_take_the_place_of_one() -> None:
    story = Story()
    story.add()
    story.wants = {CPU: 5}
    story.wait(2.0)
    story.joins(1, STRANGER)
    assert story.kept.pilots[0].state == "sent"
    story.joins(1)
    story.joins(1, OTHER)

    assert story.kept.pilots[0].node == PILOT


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pilots_max": 0}, "--max"),
        ({"backlog": 9}, "--backlog"),
        ({"time_limit_s": 1.0}, "too short"),
        ({"idle_s": 0.0}, "too short"),
    ],
)
def test_terms_that_make_no_sense_are_refused(
    changes: dict[str, Any], why: str
) -> None:
    terms = msgspec.structs.replace(TERMS, **changes)

    [answer] = Story().tell(AllocationAdded(1, terms))

    assert isinstance(answer, AnswerAllocation)
    assert why in answer.refused


def test_slots_are_what_an_idle_worker_runs_at_once() -> None:
    gpus = tuple(Device(id=f"{n}", memory_bytes=1 << 34) for n in range(4))
    shape = Capacity(cpu_milli=8_000, memory_bytes=1 << 34, devices=gpus)

    assert slots(CPU, shape) == 8
    assert slots(Profile(cpu_milli=1_000, memory_bytes=1 << 32), shape) == 4
    assert slots(Profile(gpu=GpuNeed(count=2, count_max=2)), shape) == 2
    assert slots(Profile(gpu=GpuNeed(milli=500)), shape) == 8
    assert slots(Profile(cpu_milli=9_000), shape) == 0
