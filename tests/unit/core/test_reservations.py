"""Room is kept for a gang that waits, and only for it."""

from typing import Final

import msgspec
from tests.unit.core.builders import job

from shoal.core.deadlines import DeadlineHeap
from shoal.core.discovery.worker_views import WorkerViews
from shoal.core.durability.journal import AttemptPlace, Submitted
from shoal.core.negotiation.held_leases import HeldLease, HeldLeases, shape_of
from shoal.core.records.records import GroupRecord
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.reservations import Reservations
from shoal.model.ids import Attempt, LeaseId, NodeId, RequestId
from shoal.model.job import Job
from shoal.model.resources import Allocation, Capacity, Profile
from shoal.protocol.messages import Inventory, Load

replace = msgspec.structs.replace
ONE_CPU: Final = Profile(cpu_milli=1_000)


class Pool:
    """A scheduler's knowledge of three workers with two CPUs each."""

    def __init__(self) -> None:
        heap = DeadlineHeap()
        self.book = JobBook()
        self.views = WorkerViews(NodeId("s"), heap)
        self.holdings = HeldLeases(self.views.table, heap)
        self.reservations = Reservations(self.book, self.views, self.holdings)
        for n in range(3):
            self.see(f"w{n}", free=2_000)

    def see(self, node: str, *, free: int, seq: int = 1) -> None:
        """Take in what a worker says of itself."""
        inventory = Inventory(
            epoch=1,
            seq=seq,
            capacity=Capacity(cpu_milli=2_000),
            load=Load(cpu_milli=free),
            drivers=("process",),
        )
        self.views.on_inventory(NodeId(node), inventory, 0.0)

    def submit(self, made: Job, since: float) -> GroupRecord:
        """Let the only group of a job wait."""
        self.book.submit(Submitted(made, 0.0), since)
        return self.book.groups[made.groups[0].id]

    def run(self, made: Job, worker: str, *, seq: int = 1) -> None:
        """Let the first task of a job occupy a CPU of a worker from time 0."""
        self.submit(made, 0.0)
        task = made.groups[0].tasks[0]
        lease, attempt = LeaseId(f"{worker}/{seq}"), Attempt(NodeId("s"), 1, seq)
        place = AttemptPlace(task.id, attempt, NodeId(worker), lease)
        self.book.assign((place,), 0.0)
        run = self.book.runs[attempt]
        run.move("start", 0.0)
        run.allocation = Allocation(cpu_milli=1_000)
        holding = HeldLease(
            lease=lease,
            worker=NodeId(worker),
            request=RequestId("r"),
            group=made.groups[0].id,
            shape=shape_of(made, task, 0),
            state="committed",
            line=[attempt],
        )
        self.holdings.add(holding, 0.0)

    def reserve(self, group: GroupRecord, now: float = 0.0) -> list[NodeId]:
        """Keep room for a gang."""
        made = self.book.jobs[group.job].job
        shape = shape_of(made, group.group.tasks[0], 0)
        least = group.group.gang_min
        return self.reservations.reserve(group, shape, least, now)


def _job(name: str, size: int, gang_min: int = 0, limit_s: float | None = None) -> Job:
    made = job(name, groups={"g": (size, ())}, gang_min=gang_min)
    tasks = tuple(
        replace(task, profiles=(ONE_CPU,), time_limit_s=limit_s, grace_s=0.0)
        for task in made.groups[0].tasks
    )
    return replace(made, groups=(replace(made.groups[0], tasks=tasks),))


def test_what_comes_after_a_waiting_gang_stays_off_its_workers() -> None:
    pool = Pool()
    gang = pool.submit(_job("gang", 4, 4), since=0.0)
    later = pool.submit(_job("later", 1), since=1.0)

    slots = pool.reserve(gang)

    assert slots == ["w0", "w0", "w1", "w1"]
    assert pool.reservations.barred(later, 0, 1.0) == {"w0", "w1"}
    assert pool.reservations.barred(gang, 0, 1.0) == ()


def test_what_came_before_or_is_more_important_is_not_held_back() -> None:
    pool = Pool()
    gang = pool.submit(_job("gang", 4, 4), since=5.0)
    earlier = pool.submit(_job("earlier", 1), since=1.0)
    later = pool.submit(_job("later", 1), since=9.0)
    pool.reserve(gang)

    assert pool.reservations.barred(earlier, 0, 9.0) == ()
    assert pool.reservations.barred(later, 1, 9.0) == ()
    assert pool.reservations.barred(later, 0, 9.0) != ()


def test_a_task_that_ends_before_the_gang_can_start_may_pass_it() -> None:
    pool = Pool()
    for n in range(3):
        pool.run(_job(f"busy{n}", 1, limit_s=100.0 + n), f"w{n}", seq=n + 1)
        pool.see(f"w{n}", free=1_000, seq=2)
    gang = pool.submit(_job("gang", 6, 6), since=0.0)
    short = pool.submit(_job("short", 1, limit_s=50.0), since=1.0)
    long = pool.submit(_job("long", 1, limit_s=500.0), since=1.0)

    pool.reserve(gang)

    assert pool.reservations.current is not None
    assert pool.reservations.current.starts_at == 102.0
    assert pool.reservations.barred(short, 0, 10.0) == ()
    assert pool.reservations.barred(long, 0, 10.0) == {"w0", "w1", "w2"}


def test_nothing_passes_a_gang_that_waits_for_tasks_of_others() -> None:
    pool = Pool()
    for n in range(3):
        pool.see(f"w{n}", free=1_000, seq=2)
    gang = pool.submit(_job("gang", 6, 6), since=0.0)
    short = pool.submit(_job("short", 1, limit_s=1.0), since=1.0)

    pool.reserve(gang)

    assert pool.reservations.barred(short, 0, 10.0) == {"w0", "w1", "w2"}


def test_nothing_is_kept_for_a_gang_that_the_workers_could_never_hold() -> None:
    pool = Pool()
    gang = pool.submit(_job("gang", 7, 7), since=0.0)
    later = pool.submit(_job("later", 1), since=1.0)

    assert pool.reserve(gang) == []
    assert pool.reservations.barred(later, 0, 1.0) == ()


def test_only_one_gang_has_room_kept_until_it_starts_or_is_gone() -> None:
    pool = Pool()
    first = pool.submit(_job("first", 2, 2), since=0.0)
    second = pool.submit(_job("second", 2, 2), since=1.0)
    pool.reserve(first)

    assert pool.reserve(second) == []

    pool.reservations.end(first.id)

    assert pool.reserve(second) == ["w0", "w0"]


def test_a_worker_that_lies_about_a_task_does_not_confuse_the_plan() -> None:
    pool = Pool()
    pool.run(_job("busy", 1, limit_s=10.0), "w0")
    pool.book.runs[Attempt(NodeId("s"), 1, 1)].allocation = Allocation(
        cpu_milli=9_000_000
    )
    pool.see("w0", free=1_000, seq=2)
    gang = pool.submit(_job("gang", 5, 5), since=0.0)

    assert len(pool.reserve(gang)) == 5
