"""What tasks may submit, and what ends with them, also across restarts."""

from random import Random

import pytest
from msgspec.structs import replace
from tests.unit.core.builders import job

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import AttemptPlace, Entry
from shoal.core.events import Answer, Booted, JobSubmitted, Record
from shoal.core.membership.roster import Roster
from shoal.core.scheduling import children
from shoal.core.scheduling.scheduler import Scheduler
from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Job
from shoal.sim.node import trust

S, W = NodeId("s"), NodeId("w")


def scheduler(journal: list[Entry]) -> Scheduler:
    roster = Roster(trust.members(), trust.WALL_AT_START_S)
    grant = trust.grant(S, ("scheduler",), OwnerId("ann"))
    roster.meet(S, grant, 0.0)
    return Scheduler(S, roster, journal=journal, grant=grant, rng=Random(1))


class Life:
    """A scheduler whose jobs run as soon as they are told to."""

    def __init__(self) -> None:
        self.journal: list[Entry] = []
        self.scheduler = scheduler([])
        self.sequence = 0

    def submit(
        self, made: Job, parent: Attempt | None = None, *, detached: bool = False
    ) -> str:
        event = JobSubmitted(1, made, parent=parent, detached=detached)
        effects = self.scheduler.handle(event, 0.0)
        self.journal += [e.entry for e in effects if isinstance(e, Record)]
        return next(e.refused for e in effects if isinstance(e, Answer))

    def run(self, name: str) -> Attempt:
        self.sequence += 1
        attempt = Attempt(S, 1, self.sequence)
        place = AttemptPlace(TaskId(f"{name}.g.0"), attempt, W, LeaseId(f"l{name}"))
        self.journal += self.scheduler.book.assign((place,), 0.0)
        return attempt

    def end(self, name: str) -> None:
        task = TaskId(f"{name}.g.0")
        self.journal += self.scheduler.book.finish(task, "done", 0.0)

    def state(self, name: str) -> str:
        return self.scheduler.book.jobs[JobId(name)].state


def test_a_child_has_the_owner_and_at_most_the_rank_of_its_parent() -> None:
    life = Life()
    life.submit(job("p", priority=3))

    asked = job("c", owner=OwnerId("mallory"), priority=9, preempt=True)
    assert life.submit(asked, life.run("p")) == ""

    made = life.scheduler.book.jobs[JobId("c")].job
    assert (made.owner, made.priority, made.preempt) == ("ann", 3, False)


def test_only_a_live_attempt_submits() -> None:
    life = Life()
    life.submit(job("p"))
    attempt = life.run("p")
    life.end("p")

    assert life.submit(job("c"), attempt) == children.OVER
    assert life.submit(job("c"), Attempt(S, 9, 9)) == children.OVER


def test_generations_are_bounded() -> None:
    life, parent = Life(), None
    for depth in range(children.DEPTH_MAX + 1):
        assert life.submit(job(f"j{depth}"), parent) == ""
        parent = life.run(f"j{depth}")

    assert "generations" in life.submit(job("last"), parent)


def test_children_that_have_not_ended_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children, "CHILDREN_MAX", 2)
    life = Life()
    life.submit(job("p"))
    attempt = life.run("p")
    for name in ("a", "b"):
        life.submit(job(name), attempt)

    assert "have not ended" in life.submit(job("c"), attempt)
    life.run("a")
    life.end("a")
    assert life.submit(job("c"), attempt) == ""


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_crash_between_an_end_and_what_follows_loses_no_orphan(
    is_compacted: bool,
) -> None:
    life = Life()
    life.submit(job("p"))
    attempt = life.run("p")
    life.submit(job("c"), attempt)
    life.submit(job("d"), attempt, detached=True)
    life.end("p")  # Nothing was cancelled: the node dies here.
    if is_compacted:
        life.journal = compacted(life.scheduler.book)

    life.scheduler = scheduler(life.journal)
    life.scheduler.handle(Booted(), 0.0)

    assert (life.state("c"), life.state("d")) == ("cancelled", "active")


def test_a_child_asks_for_nothing_that_outlives_or_exceeds_its_parent() -> None:
    life = Life()
    life.submit(job("p", nodes=(W,)))
    attempt = life.run("p")
    group = job("c").groups[0]
    work = replace(group.tasks[0].work, mounts=("data",))
    wants = replace(group, tasks=(replace(group.tasks[0], work=work),))

    assert "mount 'data'" in life.submit(replace(job("c"), groups=(wants,)), attempt)
    assert "nodes" in life.submit(job("c", nodes=(S,)), attempt)
    assert life.submit(job("c"), attempt) == ""
    assert life.scheduler.book.jobs[JobId("c")].job.nodes == (W,)
