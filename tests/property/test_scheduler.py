"""Whatever workers and clients do, a scheduler keeps its promises."""

from random import Random
from typing import Any, Final, Literal, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.fake_keys import ROOT, SHOAL, granted, verify
from tests.property.wire_values import ANY_MESSAGE

from shoal.core import events
from shoal.core.durability import journal
from shoal.core.membership.members import Members
from shoal.core.membership.roster import Roster
from shoal.core.scheduling.scheduler import Scheduler
from shoal.model.ids import (
    Attempt,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    RequestId,
    TaskId,
)
from shoal.model.job import Group, Job, Retry, Task
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.protocol import messages as m

S: Final = NodeId("s")
WORKERS: Final = st.sampled_from([NodeId(f"w{n}") for n in range(1, 4)])
SPANS: Final = st.sampled_from([0.0, 0.1, 0.7, 2.0, 5.0, 25.0])
DEVICES: Final = (Device("g0", memory_bytes=8), Device("g1", memory_bytes=8))
PROFILES: Final = st.sampled_from(
    [
        Profile(cpu_milli=1_000),
        Profile(cpu_milli=3_000),
        Profile(cpu_milli=500, gpu=GpuNeed()),
    ]
)
Kind = Literal["exited", "cancelled", "preempted", "timed-out", "not-started", "lost"]
OUTCOMES: Final = st.builds(
    m.Outcome,
    kind=st.sampled_from(
        ["exited", "cancelled", "preempted", "timed-out", "not-started", "lost"]
    ),
    exit_code=st.sampled_from([0, 0, 1, None]),
)


@st.composite
def jobs(draw: st.DrawFn, id_: str) -> Job:
    """A job of one to three groups, each of which may need the one before."""
    gang = draw(st.booleans())
    profiles = draw(st.lists(PROFILES, min_size=1, max_size=2).map(tuple))
    groups: list[Group] = []
    for n in range(draw(st.integers(1, 3))):
        group, size = GroupId(f"{id_}.{n}"), draw(st.integers(1, 4))
        chained = draw(st.booleans())
        needs = (groups[-1].id,) if groups and chained else ()
        tasks = tuple(
            Task(
                id=TaskId(f"{group}.{index}"),
                job=JobId(id_),
                group=group,
                index=index,
                size=size,
                profiles=profiles,
                grace_s=1.0,
            )
            for index in range(size)
        )
        least = draw(st.integers(1, size)) if gang else 0
        groups.append(Group(id=group, tasks=tasks, gang_min=least, needs=needs))
    once = draw(st.booleans())
    return Job(
        id=JobId(id_),
        owner=OwnerId(""),
        groups=tuple(groups),
        priority=draw(st.integers(-5, 60)),
        preempt=draw(st.booleans()),
        at_most_once=once,
        speculate=not once and draw(st.booleans()),
        retry=Retry(max=1, on=draw(st.sampled_from([("worker-lost",), ("failed",)]))),
    )


class SchedulerRules(RuleBasedStateMachine):
    """A scheduler never raises, never forgets a job, and takes one end per task."""

    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster(Members(SHOAL, ROOT, verify), 0.0)
        own = granted(S, owner=OwnerId("bob"), expires_wall_s=1e9)
        self.roster.meet(S, own, 0.0)
        self.quota = granted(
            "ann", quota_gpus=1, quota_cpu_milli=4_000, expires_wall_s=1e9
        )
        self.now = 0.0
        self.entries: list[journal.Entry] = []
        self.jobs: dict[JobId, Job] = {}
        self.tokens: dict[int, JobId] = {}  # of submits
        self.demands: list[tuple[NodeId, m.Demand]] = []
        self.offered: list[tuple[NodeId, RequestId, LeaseId]] = []
        self.assigned: dict[Attempt, tuple[NodeId, LeaseId]] = {}
        self.finished: dict[TaskId, str] = {}
        self.live: dict[GroupId, dict[Attempt, None]] = {}
        self.seq = 0
        self.begin()

    def begin(self) -> None:
        """Begin a life from the journal."""
        self.generation_recorded = False
        self.scheduler = Scheduler(
            S, self.roster, journal=self.entries, rng=Random(1), now=self.now
        )
        self.feed(events.Booted())

    def feed(self, event: events.Event) -> None:
        for effect in self.scheduler.handle(event, self.now):
            match effect:
                case events.Record():
                    self.on_record(effect)
                case events.Send():
                    assert self.generation_recorded, "the generation comes first"
                    self.on_send(effect.peer, effect.message)
                case events.Answer() if effect.token in self.tokens:
                    self.on_answer(effect)
                case _:
                    pass

    # What it does is checked in the order in which the host would do it.

    def on_record(self, effect: events.Record) -> None:
        entry = effect.entry
        self.entries.append(entry)
        match entry:
            case journal.Incarnated():
                generations = [
                    e.generation
                    for e in self.entries[:-1]
                    if isinstance(e, journal.Incarnated)
                ]
                assert entry.generation > max(generations, default=0)
                self.generation_recorded = True
            case journal.Submitted():
                assert effect.durable
                self.jobs[entry.job.id] = entry.job
            case journal.Assigned():
                assert effect.durable
                self.on_assigned(entry)
            case journal.Finished():
                assert effect.durable
                assert entry.task not in self.finished, "a task ends once"
                self.finished[entry.task] = entry.state
                self.end_live(entry.task)
            case journal.Cancelled():
                assert effect.durable
                for task in self.jobs[entry.job].tasks():
                    self.finished.setdefault(task.id, "cancelled")
                    self.end_live(task.id)
            case journal.Returned() | journal.Exited():
                self.live_in(entry.task).pop(entry.attempt, None)
            case _:
                pass

    def on_assigned(self, entry: journal.Assigned) -> None:
        for place in entry.places:
            assert place.attempt not in self.assigned, "no attempt is used twice"
            assert place.task not in self.finished
            self.assigned[place.attempt] = (place.worker, place.lease)
        group = self.group_of(entry.places[0].task)
        if group.gang_min and not self.live.get(group.id):
            ended = sum(task.id in self.finished for task in group.tasks)
            exited = len(self.scheduler.book.groups[group.id].exited)
            least = min(group.gang_min, len(group.tasks) - ended)
            assert len(entry.places) + exited >= least, "all of a gang, or none"
        for place in entry.places:
            self.live_in(place.task)[place.attempt] = None

    def on_send(self, peer: NodeId, message: m.AnyMessage) -> None:
        match message:
            case m.Demand():
                self.demands = [*self.demands[-20:], (peer, message)]
            case m.Assignment():
                worker, lease = self.assigned[message.attempt]
                assert (peer, message.lease) == (worker, lease), "recorded as sent"
                assert message.task.id not in self.finished
            case _:
                pass

    def on_answer(self, answer: events.Answer) -> None:
        if not answer.refused:
            assert answer.job in self.jobs, "recorded before it is answered"

    def group_of(self, task: TaskId) -> Group:
        [group] = [
            group
            for job in self.jobs.values()
            for group in job.groups
            if any(t.id == task for t in group.tasks)
        ]
        return group

    def live_in(self, task: TaskId) -> dict[Attempt, None]:
        return self.live.setdefault(self.group_of(task).id, {})

    def end_live(self, task: TaskId) -> None:
        """Forget the attempts of a task that has ended."""
        record = self.scheduler.book.tasks.get(task)
        assert record is None or not record.live
        runs = self.live_in(task)
        for attempt in list(runs):
            if attempt not in self.scheduler.book.runs:
                del runs[attempt]

    def say(self, peer: NodeId, message: m.AnyMessage) -> None:
        self.feed(events.MessageReceived(peer, message))

    # Clients.

    @precondition(lambda self: len(self.jobs) < 6)
    @rule(data=st.data(), with_quota=st.booleans())
    def submit(self, data: st.DataObject, with_quota: bool) -> None:
        id_ = f"j{data.draw(st.integers(0, 7))}"
        self.seq += 1
        self.tokens[self.seq] = JobId(id_)
        grant = self.quota if with_quota else None
        self.feed(events.JobSubmitted(self.seq, data.draw(jobs(id_)), grant))

    @rule(number=st.integers(0, 7))
    def cancel(self, number: int) -> None:
        self.feed(events.CancelRequested(-1, JobId(f"j{number}")))

    @rule(data=st.data())
    def cancel_one_task(self, data: st.DataObject) -> None:
        tasks = [task.id for job in self.jobs.values() for task in job.tasks()]
        if tasks:
            task = data.draw(st.sampled_from(tasks))
            job = JobId(task.partition(".")[0])
            self.feed(events.CancelRequested(-1, job, task=task))

    # Workers that do as they should.

    @rule(worker=WORKERS, cpu=st.integers(0, 4), gpus=st.integers(0, 2))
    def tell(self, worker: NodeId, cpu: int, gpus: int) -> None:
        self.seq += 1
        free = (1_000,) * gpus + (0,) * (2 - gpus)
        load = m.Load(cpu * 1_000, 64, 64, free, (8,) * gpus + (0,) * (2 - gpus))
        self.say(
            worker,
            m.Inventory(
                epoch=1,
                seq=self.seq,
                capacity=Capacity(4_000, 64, 64, DEVICES),
                load=load,
                drivers=("process",),
            ),
        )

    @precondition(lambda self: self.demands)
    @rule(data=st.data(), fewer=st.integers(0, 1))
    def offer(self, data: st.DataObject, fewer: int) -> None:
        worker, demand = data.draw(st.sampled_from(self.demands))
        leases: list[LeaseId] = []
        for _ in range(demand.count - fewer):
            self.seq += 1
            leases.append(LeaseId(f"{worker}/1/{self.seq}"))
        self.offered += [(worker, demand.request, lease) for lease in leases]
        request = demand.request
        self.say(
            worker, m.Offer(request=request, leases=tuple(leases), valid_for_s=6.0)
        )

    @precondition(lambda self: self.demands)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        worker, demand = data.draw(st.sampled_from(self.demands))
        self.say(worker, m.Refusal(request=demand.request, reason="full"))

    @precondition(lambda self: self.offered)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        worker, request, _ = data.draw(st.sampled_from(self.offered))
        leases = tuple(v for w, r, v in self.offered if (w, r) == (worker, request))
        self.say(worker, m.Committed(request=request, leases=leases))

    @precondition(lambda self: self.assigned)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(list(self.assigned)))
        worker, lease = self.assigned[attempt]
        self.say(worker, m.Started(attempt=attempt, lease=lease))

    @precondition(lambda self: self.assigned)
    @rule(data=st.data(), outcome=OUTCOMES)
    def report(self, data: st.DataObject, outcome: m.Outcome) -> None:
        attempt = data.draw(st.sampled_from(list(self.assigned)))
        worker, lease = self.assigned[attempt]
        self.say(worker, m.Report(attempt=attempt, lease=lease, outcome=outcome))

    # Workers that do not.

    @precondition(lambda self: self.offered)
    @rule(data=st.data(), peer=WORKERS, what=st.integers(0, 5))
    def upset(self, data: st.DataObject, peer: NodeId, what: int) -> None:
        worker, request, lease = data.draw(st.sampled_from(self.offered))
        attempt = data.draw(st.sampled_from([None, *self.assigned]))
        known = m.Occupied(lease, attempt)
        messages: list[m.AnyMessage] = [
            m.Withdrawal(leases=(lease,)),
            m.Preemption(lease=lease, grace_s=1.0),
            m.Refusal(request=request, leases=(lease,), attempt=attempt),
            m.Refusal(leases=(lease,), attempt=attempt, reason="lease-unknown"),
            m.Renewed(leases=(known,), gone=data.draw(st.sampled_from([(), (lease,)]))),
            m.Offer(request=request, leases=(lease, lease), valid_for_s=1.0),
        ]
        self.say(data.draw(st.sampled_from([worker, peer])), messages[what])

    @rule(peer=WORKERS, message=ANY_MESSAGE)
    def say_anything(self, peer: NodeId, message: m.AnyMessage) -> None:
        self.say(peer, message)

    @rule(worker=WORKERS, back=st.booleans())
    def link(self, worker: NodeId, back: bool) -> None:
        gone = events.PeerLost(worker)
        self.feed(events.PeerConnected(worker, None) if back else gone)

    # Time and crashes.

    @rule(span_s=SPANS)
    def pass_time(self, span_s: float) -> None:
        until = self.now + span_s
        for _ in range(5_000):
            at = self.scheduler.next_deadline()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self.feed(events.DeadlineReached())
        else:
            raise AssertionError("deadlines without end")
        self.now = until

    @rule()
    def restart(self) -> None:
        before = _told(self.scheduler)
        self.begin()
        after = _told(self.scheduler)
        assert before.keys() == after.keys()
        for task, state in before.items():
            if task in self.finished:
                assert after[task] == state, "an end is an end after a restart too"

    @invariant()
    def ends_are_journalled(self) -> None:
        for id_, record in self.scheduler.book.tasks.items():
            assert record.ended == (id_ in self.finished)

    @invariant()
    def quota_holds(self) -> None:
        used = self.scheduler.holdings.used_by(OwnerId("ann"))
        assert used.gpus <= 1
        assert used.cpu_milli <= 4_000

    def teardown(self) -> None:
        """Cancel all: every job ends, and nothing of it is kept."""
        for job in list(self.jobs):
            self.feed(events.CancelRequested(-1, job))
        for record in self.scheduler.book.jobs.values():
            assert record.state != "active"
        for worker in ("w1", "w2", "w3"):
            self.feed(events.PeerLost(NodeId(worker)))
        self.pass_time(300.0)
        left = {name: size for name, size in _kept(self.scheduler).items() if size}
        assert left == {}


def _told(scheduler: Scheduler) -> dict[TaskId, str]:
    return {id_: record.state for id_, record in scheduler.book.tasks.items()}


def _size(owner: object, name: str) -> int:
    """Count what a part keeps, whether or not others may read it."""
    kept = vars(owner)
    return len(kept[name] if name in kept else kept[f"_{name}"])


def _kept(scheduler: Scheduler) -> dict[str, int]:
    """Return how much each part of a scheduler remembers."""
    inside = cast("Any", scheduler)
    parts = {
        "": (inside, ("lingering",)),
        "book": (scheduler.book, ("dependents",)),
        "negotiator": (
            inside._negotiator,
            ("asks", "rounds", "round_of", "commits", "pending", "deadlines"),
        ),
        "dispatcher": (inside._dispatcher, ("give_ups", "back_offs")),
        "stragglers": (inside._dispatcher._stragglers, ("watched", "looks")),
        "sender": (inside._dispatcher._sender, ("tries", "stopping", "resends")),
        "holdings": (
            scheduler.holdings,
            ("all", "ties", "idle", "counts", "used", "renewals"),
        ),
        "prefetch": (scheduler.holdings.prefetch, ("open", "waited_at", "recalls")),
        "queue": (inside._queue, ("waiting", "wanted", "rests", "rest_ends")),
        "reservations": (inside._reservations, ("way_made",)),
        "refusals": (inside._refusals, ("reasons", "ends")),
        "discovery": (inside._discovery, ("wants",)),
        "views": (scheduler.views, ("seen", "costs", "expiry")),
    }
    return {"runs": len(scheduler.book.runs)} | {
        f"{part} {name}": _size(owner, name)
        for part, (owner, names) in parts.items()
        for name in names
    }


SchedulerRules.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
test_a_scheduler_keeps_its_promises = SchedulerRules.TestCase
