"""Whatever peers and drivers do, a worker keeps its promises."""

from random import Random
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.fake_keys import ROOT, SHOAL, granted, verify
from tests.property.wire_values import ANY_MESSAGE

from shoal.core import events
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.leasing.worker import Worker
from shoal.core.lending.events import DeviceMeasured, MachineMeasured, OwnerObserved
from shoal.core.lending.lend_rule import LendRule
from shoal.core.membership.members import Members
from shoal.core.membership.roster import Roster
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
from shoal.model.job import Task
from shoal.model.resources import (
    Capacity,
    Device,
    GpuNeed,
    Ledger,
    Profile,
    total,
)
from shoal.protocol import messages as m

CAPACITY: Final = Capacity(
    cpu_milli=4_000,
    memory_bytes=8,
    devices=(Device("g0", memory_bytes=4), Device("g1", memory_bytes=8)),
)
OWN: Final = NodeId("s1")  # the scheduler of the machine's own owner
NODES: Final = st.sampled_from([NodeId("s1"), NodeId("s2"), NodeId("s3")])
REQUESTS: Final = st.sampled_from([RequestId(f"r{n}") for n in range(6)])
SPANS: Final = st.sampled_from([0.0, 0.05, 0.7, 3.0, 6.0, 20.0])
PROFILES: Final = st.builds(
    Profile,
    cpu_milli=st.sampled_from([0, 500, 1_000, 3_000, 5_000]),
    memory_bytes=st.integers(0, 5),
    gpu=st.none()
    | st.builds(
        GpuNeed,
        count=st.integers(0, 2),
        count_max=st.integers(0, 2),
        milli=st.sampled_from([0, 300, 1_000]),
        memory_min_bytes=st.sampled_from([0, 3, 8]),
    ),
)
OUTCOMES: Final = st.sampled_from(
    [m.Outcome("exited", exit_code=0), m.Outcome("not-started"), m.Outcome("lost")]
)


class WorkerRules(RuleBasedStateMachine):
    """A worker never runs more than it has, nor for anyone but a lease's owner."""

    def __init__(self) -> None:
        super().__init__()
        roster = Roster(Members(SHOAL, ROOT, verify), 0.0)
        for node, priority in (("s1", 0), ("s2", 5), ("s3", 50)):
            grant = granted(
                node,
                owner=OwnerId(node),
                top_priority=priority,
                expires_wall_s=1e9,
            )
            roster.meet(NodeId(node), grant, 0.0)
        self.now = 0.0
        rules = OwnerRules(own=OwnerId(OWN), lend=LendRule(idle_s=20.0, calm=True))
        self.worker = Worker(
            NodeId("w"), CAPACITY, roster, rules=rules, epoch=1, rng=Random(1)
        )
        self.owners: dict[LeaseId, NodeId] = {}  # by what was offered
        self.running: dict[Attempt, events.StartTask] = {}
        self.started: dict[Attempt, None] = {}
        self.feed(events.Booted())
        self.feed(OwnerObserved(input_idle_s=100.0))

    def feed(self, event: events.Event) -> list[events.Effect]:
        effects = self.worker.handle(event, self.now)
        for effect in effects:
            match effect:
                case events.Send(peer, m.Offer() as offer):
                    self.owners.update(dict.fromkeys(offer.leases, peer))
                case events.StartTask():
                    self.start(effect)
                case events.StopTask():
                    assert effect.attempt in self.running
                case _:
                    pass
        return effects

    def start(self, effect: events.StartTask) -> None:
        attempt = effect.attempt
        assert attempt not in self.started, "an attempt runs once at most"
        assert self.owners[effect.lease] == attempt.scheduler, "a lease is its owner's"
        leases = [run.lease for run in self.running.values()]
        assert effect.lease not in leases, "one attempt on a lease at a time"
        self.running[attempt] = effect
        self.started[attempt] = None

    def say(self, peer: NodeId, message: m.AnyMessage) -> list[events.Effect]:
        return self.feed(events.MessageReceived(peer, message))

    def leases(self, data: st.DataObject) -> tuple[LeaseId, ...]:
        known = [*self.owners, LeaseId("w/1/999")]
        return tuple(data.draw(st.lists(st.sampled_from(known), max_size=4)))

    # What peers say.

    @rule(
        peer=NODES,
        request=REQUESTS,
        profile=PROFILES,
        count=st.integers(0, 5),
        priority=st.integers(-5, 60),
        flags=st.tuples(st.booleans(), st.booleans()),
        wait_s=SPANS,
    )
    def demand(
        self,
        peer: NodeId,
        request: RequestId,
        profile: Profile,
        count: int,
        priority: int,
        flags: tuple[bool, bool],
        wait_s: float,
    ) -> None:
        demand = m.Demand(
            request=request,
            profile=profile,
            count=count,
            rank=m.Rank(priority, 1.0, peer, request),
            preempt=flags[0],
            preemptible=flags[1],
            wait_for_s=wait_s,
        )
        self.say(peer, demand)

    @rule(data=st.data(), peer=NODES, request=REQUESTS, span_s=SPANS)
    def commit(
        self, data: st.DataObject, peer: NodeId, request: RequestId, span_s: float
    ) -> None:
        leases = self.leases(data)
        effects = self.say(
            peer, m.Commit(request=request, leases=leases, lease_s=span_s)
        )
        for effect in effects:
            match effect:
                case events.Send(to, m.Committed() as committed):
                    assert all(self.owners[v] == to for v in committed.leases)
                case _:
                    pass

    @rule(data=st.data(), peer=NODES, span_s=SPANS)
    def renew(self, data: st.DataObject, peer: NodeId, span_s: float) -> None:
        self.say(peer, m.Renew(leases=self.leases(data), lease_s=span_s))

    @rule(data=st.data(), peer=NODES)
    def release(self, data: st.DataObject, peer: NodeId) -> None:
        self.say(peer, m.Release(leases=self.leases(data)))

    @precondition(lambda self: self.owners)
    @rule(
        data=st.data(),
        peer=NODES,
        named=NODES,
        sequence=st.integers(1, 9),
        before=st.none() | st.integers(1, 3),
        limit_s=st.none() | SPANS,
    )
    def assign(
        self,
        data: st.DataObject,
        peer: NodeId,
        named: NodeId,
        sequence: int,
        before: int | None,
        limit_s: float | None,
    ) -> None:
        task = Task(
            id=TaskId("t"), job=JobId("j"), group=GroupId("j.g"), time_limit_s=limit_s
        )
        attempt = Attempt(data.draw(st.sampled_from([peer, named])), 1, sequence)
        lease = data.draw(st.sampled_from(list(self.owners)))
        after = before and Attempt(attempt.scheduler, 1, sequence - before)
        self.say(
            peer,
            m.Assignment(lease=lease, attempt=attempt, task=task, after=after or None),
        )

    @rule(
        data=st.data(), peer=NODES, sequence=st.integers(1, 9), cpus=st.integers(1, 2)
    )
    def assign_under_every_lease(
        self, data: st.DataObject, peer: NodeId, sequence: int, cpus: int
    ) -> None:
        """Send one attempt under all leases, to start or to wait, again and again."""
        profile = Profile(cpu_milli=500 * cpus)
        request = RequestId(f"{peer}/{self.now}/{sequence}")
        rank = m.Rank(0, 1.0, peer, request)
        demand = m.Demand(request=request, profile=profile, count=2, rank=rank)
        self.say(peer, demand)
        mine = tuple(lease for lease, owner in self.owners.items() if owner == peer)
        self.say(peer, m.Commit(request=request, leases=mine, lease_s=20.0))
        task = Task(id=TaskId("t"), job=JobId("j"), group=GroupId("j.g"))
        for lease in data.draw(st.permutations(mine[-4:])):
            before = data.draw(st.sampled_from([0, 0, 1, 2]))
            attempt = Attempt(peer, 1, sequence)
            after = Attempt(peer, 1, sequence - before) if before else None
            assignment = m.Assignment(
                lease=lease, attempt=attempt, task=task, after=after
            )
            self.say(peer, assignment)
            if data.draw(st.booleans()):
                self.say(peer, m.Cancel(attempt=attempt, lease=lease))
            if data.draw(st.booleans()) and attempt in self.running:
                del self.running[attempt]
                self.feed(events.TaskEnded(attempt, m.Outcome("exited", exit_code=0)))
                self.say(peer, m.Acknowledgement(attempts=(attempt,)))

    @precondition(lambda self: self.owners)
    @rule(
        data=st.data(),
        peer=NODES,
        sequence=st.integers(1, 9),
        grace_s=SPANS,
        unless_started=st.booleans(),
    )
    def cancel(
        self,
        data: st.DataObject,
        peer: NodeId,
        sequence: int,
        grace_s: float,
        unless_started: bool,
    ) -> None:
        lease = data.draw(st.sampled_from(list(self.owners)))
        attempt = Attempt(peer, 1, sequence)
        cancel = m.Cancel(
            attempt=attempt, lease=lease, grace_s=grace_s, unless_started=unless_started
        )
        effects = self.say(peer, cancel)
        if unless_started:
            stops = [e for e in effects if isinstance(e, events.StopTask)]
            assert stops == [], "what runs goes on"

    @rule(peer=NODES, sequence=st.integers(1, 9))
    def acknowledge(self, peer: NodeId, sequence: int) -> None:
        self.say(peer, m.Acknowledgement(attempts=(Attempt(peer, 1, sequence),)))

    @rule(peer=NODES | st.just(NodeId("nobody")), message=ANY_MESSAGE)
    def say_anything(self, peer: NodeId, message: m.AnyMessage) -> None:
        self.say(peer, message)

    # What the host tells.

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=OUTCOMES)
    def end(self, data: st.DataObject, outcome: m.Outcome) -> None:
        attempt = data.draw(st.sampled_from(list(self.running)))
        del self.running[attempt]
        effects = self.feed(events.TaskEnded(attempt, outcome))
        reports = [
            effect
            for effect in effects
            if isinstance(effect, events.Send) and isinstance(effect.message, m.Report)
        ]
        assert [report.peer for report in reports] == [attempt.scheduler]

    @rule(idle_s=st.sampled_from((0.0, 5.0, 100.0)), cpu_milli=st.integers(0, 999))
    def owner(self, idle_s: float, cpu_milli: int) -> None:
        effects = self.feed(OwnerObserved(idle_s, "tty1", cpu_milli))
        for effect in effects:
            match effect:
                case events.StopTask():
                    assert effect.attempt.scheduler != OWN, "the owner's tasks go on"
                case _:
                    pass

    @rule(memory=st.integers(0, 12), gpu=st.integers(0, 9), stalled=st.booleans())
    def machine(self, memory: int, gpu: int, stalled: bool) -> None:
        taken = tuple(DeviceMeasured(id_, gpu) for id_ in ("g0", "g1", "gone"))
        measured = MachineMeasured(
            memory_bytes=memory, devices=taken, stalled_milli=500 * stalled
        )
        self.feed(measured)

    @rule(peer=NODES, back=st.booleans())
    def link(self, peer: NodeId, back: bool) -> None:
        gone = events.PeerLost(peer)
        self.feed(events.PeerConnected(peer, None) if back else gone)

    @rule(span_s=SPANS)
    def pass_time(self, span_s: float) -> None:
        until = self.now + span_s
        for _ in range(1_000):
            at = self.worker.next_deadline()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self.feed(events.DeadlineReached())
        else:
            raise AssertionError("deadlines without end")
        self.now = until

    # What always holds.

    @invariant()
    def runs_within_its_capacity(self) -> None:
        used = total(run.allocation for run in self.running.values())
        Ledger(CAPACITY).take(used)  # Asserts that it fits.

    @invariant()
    def books_what_leases_take(self) -> None:
        book = self.worker.leases
        spare = Ledger(CAPACITY)
        spare.take(total(lease.taken for lease in book))
        spare.take(book.withheld)
        assert _balance(spare) == _balance(book.ledger)

    @invariant()
    def knows_what_runs(self) -> None:
        assert sorted(self.worker.running) == sorted(self.running)
        for lease in self.worker.leases:
            if lease.running is not None:
                assert self.running[lease.running].lease == lease.id
                assert lease.taken == lease.allocation

    def teardown(self) -> None:
        """Let all end: then everything is free, and nothing is kept."""
        for node in ("s1", "s2", "s3", "nobody"):
            self.feed(events.PeerLost(NodeId(node)))
        for _ in range(3):
            self.pass_time(121.0)
            for attempt in list(self.running):
                del self.running[attempt]
                self.feed(events.TaskEnded(attempt, m.Outcome("exited", exit_code=0)))
        for attempt in self.started:
            self.say(attempt.scheduler, m.Acknowledgement(attempts=(attempt,)))
        worker = self.worker
        assert worker.leases.is_balanced
        assert len(worker.leases) == 0
        assert worker.unacknowledged == 0
        assert not worker.leases._by_request
        assert not worker.leases._earmarked
        assert len(worker._runs_due) == 0
        assert len(worker._lease_lifecycle._due) == 0


def _balance(ledger: Ledger) -> tuple[object, ...]:
    return (
        ledger.cpu_milli,
        ledger.memory_bytes,
        ledger.disk_bytes,
        ledger.milli,
        ledger.gpu_memory,
    )


WorkerRules.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
test_a_worker_keeps_its_promises = WorkerRules.TestCase
