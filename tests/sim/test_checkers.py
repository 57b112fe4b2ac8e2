"""A checker that cannot fail checks nothing: each is shown a broken promise."""

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from tests.sim.stubs import Stage

from shoal.core.artifacts.events import OutputsFetched
from shoal.core.discovery.gate import Gate
from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Cancelled,
    Entry,
    Finished,
    Incarnated,
    Returned,
    Submitted,
)
from shoal.core.events import (
    Answer,
    Disconnect,
    Effect,
    MessageReceived,
    PeerConnected,
    Send,
    StartTask,
)
from shoal.core.leasing.leases import Lease, LeaseState
from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, OwnerId, RequestId
from shoal.model.job import Job, TaskState
from shoal.model.resources import Allocation, Capacity, Device, DeviceShare, Profile
from shoal.protocol.messages import (
    ALL_OUTPUTS,
    Acknowledgement,
    AnyMessage,
    Assignment,
    Commit,
    Committed,
    Demand,
    Load,
    Offer,
    Outcome,
    Rank,
    Refusal,
    Renew,
    Report,
)
from shoal.sim.artifacts.workload import OUTPUTS, with_work
from shoal.sim.checkers.ending import Ending
from shoal.sim.checkers.strangers import CONTAINER_MAX
from shoal.sim.checkers.suite import Suite
from shoal.sim.clients import SimClients
from shoal.sim.node import trust
from shoal.sim.node.driver import Behaviour, SimProcess
from shoal.sim.node.host import SimHost
from shoal.sim.opinions import WorkerOpinion
from shoal.sim.workload import Errand, make_group

S, W = NodeId("s"), NodeId("w")
CAPACITY = Capacity(
    cpu_milli=1_000, memory_bytes=100, devices=(Device("gpu0", memory_bytes=8),)
)
GROUP = make_group("j", "g", 3, (Profile(cpu_milli=500),))
JOB = Job(id=JobId("j"), owner=OwnerId("ann"), groups=(GROUP,))
FIRST, SECOND = Attempt(S, 1, 1), Attempt(S, 1, 2)
FEW_CPUS = trust.grant(NodeId("q"), ("scheduler",), OwnerId("ann"), quota_cpu_milli=500)
DONE = Outcome("exited", exit_code=0)
IDLE = WorkerOpinion(idle=True, load=Load(), unacknowledged=0)


class Beliefs:
    """What the machines of a bench say; tests change it at will."""

    def __init__(self) -> None:
        self.workers: dict[NodeId, WorkerOpinion] = {}
        self.held: list[Lease] = []
        self.reports_held = 0
        self.seen: dict[NodeId, Load] = {}

    def leases(self, host: SimHost) -> list[Lease]:
        return self.held if host.id == W else []

    def worker(self, host: SimHost) -> WorkerOpinion | None:
        return self.workers.get(host.id)

    def held_reports(self, host: SimHost) -> int:
        return self.reports_held if host.id == S else 0

    def views(self, host: SimHost) -> dict[NodeId, Load]:
        return self.seen if host.id == S else {}


class Bench:
    """A scheduler and a worker without machines, and all checkers."""

    def __init__(self, job: Job = JOB) -> None:
        self.beliefs = Beliefs()
        self.stage = Stage()
        self.agenda = self.stage.agenda
        self.job = job
        self.suite = Suite(self.agenda, {job.id: job}, self.beliefs)
        self.stage.add("s", roles=("scheduler",))
        self.stage.add("w", capacity=CAPACITY)
        self.suite.hosts = self.stage.world.hosts
        self.clients = self.suite.clients = SimClients(self.agenda, lambda *_: True)
        self.scheduler = self.stage.world.hosts[S]
        self.worker = self.stage.world.hosts[W]
        self.pid = 0

    @property
    def broken(self) -> list[str]:
        return [violation.id for violation in self.suite.violations.found]

    def safe(self, *entries: Entry) -> None:
        self.suite.safe(self.scheduler, entries)

    def submitted(self) -> None:
        self.safe(Incarnated(1), Submitted(self.job, 0.0))

    def assigned(self, attempt: Attempt = FIRST, number: int = 0) -> None:
        task = GROUP.tasks[number].id
        self.safe(Assigned((AttemptPlace(task, attempt, W, LeaseId("w/1/1")),)))

    def finished(self, state: TaskState, attempt: Attempt | None = FIRST) -> None:
        self.safe(Finished(GROUP.tasks[0].id, state, attempt, DONE))

    def send(self, host: SimHost, peer: NodeId, message: AnyMessage) -> None:
        self.suite.sent[type(message)](host, peer, message)

    def tell(
        self, host: SimHost, peer: NodeId, message: AnyMessage, *effects: Effect
    ) -> None:
        event = MessageReceived(peer, message)
        self.suite.told[type(message)](host, event, list(effects))

    def demanded(self, peer: NodeId) -> None:
        """Let the worker answer a demand with an offer."""
        request = RequestId("r")
        rank = Rank(0, 0.0, peer, request)
        demand = Demand(request=request, profile=Profile(), count=1, rank=rank)
        leases = (LeaseId("w/1/1"),)
        offer = Offer(request=request, leases=leases, valid_for_s=6.0)
        self.tell(self.worker, peer, demand, Send(peer, offer))

    def start(
        self,
        attempt: Attempt = FIRST,
        *,
        number: int = 0,
        lease: str = "w/1/1",
        allocation: Allocation | None = None,
    ) -> SimProcess:
        self.pid += 1
        order = StartTask(
            attempt, LeaseId(lease), GROUP.tasks[number], allocation or Allocation()
        )
        process = SimProcess(self.pid, order, Behaviour(), self.agenda.now)
        self.worker.driver.processes[process.pid] = process
        self.suite.started(self.worker, process)
        return process

    def offered(self, lease: str = "w/1/1", peer: NodeId = S) -> None:
        offer = Offer(request=RequestId("r"), leases=(LeaseId(lease),), valid_for_s=6.0)
        self.send(self.worker, peer, offer)

    def ending(self) -> Ending:
        return Ending(
            self.stage.world,
            self.clients,
            self.suite.journals,
            self.suite.violations,
            self.beliefs,
        )


def lease_of(
    peer: NodeId, state: LeaseState, allocation: Allocation | None = None
) -> Lease:
    room = allocation or Allocation()
    return Lease(
        id=LeaseId("w/1/1"),
        peer=peer,
        request=RequestId("r"),
        rank=Rank(0, 0.0, peer, RequestId("r")),
        owner=OwnerId("ann"),
        preemptible=True,
        allocation=room,
        taken=room,
        state=state,
    )


def accepted(bench: Bench) -> None:
    bench.clients.go(Errand(job=JOB, scheduler=S, at_s=0.0))
    bench.agenda.run(0.1)
    bench.suite.answered(bench.scheduler, Answer(1, JOB.id))


def acknowledged_but_not_on_disk(bench: Bench) -> None:
    accepted(bench)


def submit_refused(bench: Bench) -> None:
    bench.clients.go(Errand(job=JOB, scheduler=S, at_s=0.0))
    bench.agenda.run(0.1)
    bench.suite.answered(bench.scheduler, Answer(1, JOB.id, refused="no"))


def submitted_twice(bench: Bench) -> None:
    bench.submitted()
    bench.safe(Submitted(JOB, 0.0))


def finished_twice(bench: Bench) -> None:
    bench.submitted()
    bench.assigned()
    bench.finished("failed")
    bench.finished("failed")


def done_without_a_process(bench: Bench) -> None:
    bench.submitted()
    bench.assigned()
    bench.finished("done")


def report_acknowledged_but_not_on_disk(bench: Bench) -> None:
    bench.submitted()
    bench.assigned()
    bench.send(bench.scheduler, W, Acknowledgement(attempts=(FIRST,)))


def generation_used_before_it_is_safe(bench: Bench) -> None:
    bench.safe(Submitted(JOB, 0.0))
    bench.assigned()
    assignment = Assignment(lease=LeaseId("w/1/1"), attempt=FIRST, task=GROUP.tasks[0])
    bench.send(bench.scheduler, W, assignment)


def generation_used_twice(bench: Bench) -> None:
    bench.safe(Incarnated(1), Incarnated(1))


def ended_by_a_fenced_attempt(bench: Bench) -> None:
    bench.submitted()
    bench.assigned()
    bench.safe(Returned(GROUP.tasks[0].id, FIRST, 0, 0))
    bench.finished("failed")


def one_attempt_runs_twice(bench: Bench) -> None:
    bench.offered()
    bench.start()
    bench.start()


def started_after_it_was_called_back(bench: Bench) -> None:
    bench.offered()
    outcome = Outcome("not-started", reason="cancelled before it started")
    report = Report(attempt=FIRST, lease=LeaseId("w/1/1"), outcome=outcome)
    bench.send(bench.worker, S, report)
    bench.start(FIRST)


def device_used_twice(bench: Bench) -> None:
    bench.offered()
    whole = Allocation(shares=(DeviceShare("gpu0", 1_000, 8),))
    bench.start(FIRST, allocation=whole)
    bench.start(SECOND, number=1, allocation=whole)


def more_cpu_than_there_is(bench: Bench) -> None:
    bench.offered()
    bench.start(allocation=Allocation(cpu_milli=1_001))


def lease_kept_beyond_its_end(bench: Bench) -> None:
    bench.offered()
    bench.beliefs.held = [lease_of(S, "committed")]
    bench.agenda.run(30.0)


def renewed_by_somebody_else(bench: Bench) -> None:
    bench.offered()
    bench.beliefs.held = [lease_of(S, "committed")]
    renewal = Renew(leases=(LeaseId("w/1/1"),), lease_s=60.0)
    bench.tell(bench.worker, NodeId("thief"), renewal)
    bench.agenda.run(30.0)


def offered_beyond_the_quota(bench: Bench) -> None:
    bench.stage.add("q", roles=("scheduler",), grant=FEW_CPUS)
    room = Allocation(cpu_milli=501)
    bench.beliefs.held = [lease_of(NodeId("q"), "held", room)]
    bench.demanded(NodeId("q"))


def leased_beyond_the_quota_within_a_node(bench: Bench) -> None:
    grant = msgspec.structs.replace(FEW_CPUS, quota_gpus=0, quota_cpu_milli=None)
    bench.stage.add("q", roles=("scheduler",), grant=grant)
    room = Allocation(shares=(DeviceShare("gpu0", 1_000, 8),))
    bench.beliefs.held = [lease_of(NodeId("q"), "held", room)]
    bench.agenda.run(2.0)


def process_outlives_its_lease(bench: Bench) -> None:
    bench.offered()
    bench.start()
    bench.agenda.run(60.0)


def six_workers_taken_down(bench: Bench) -> None:
    bench.offered()
    process = bench.start()
    for _ in range(6):
        bench.suite.journals.poisoned(bench.worker, process)


def container_without_bound(bench: Bench) -> None:
    gate = Gate(W, rng=Random(0))
    for number in range(CONTAINER_MAX + 1):
        gate.handle(PeerConnected(NodeId(f"n{number}"), None), 0.0)
    bench.worker.machine = gate
    bench.suite.strangers.sweep([bench.worker])


def stranger_obeyed(bench: Bench) -> None:
    bench.suite.suspect(NodeId("thief"))
    effects: list[Effect] = [Send(S, Committed(request=RequestId("r"), leases=()))]
    event = MessageReceived(NodeId("thief"), Renew(leases=(), lease_s=1.0))
    bench.suite.suspects[NodeId("thief")](bench.worker, event, effects)


def lease_offered_to_two(bench: Bench) -> None:
    bench.offered()
    bench.offered(peer=NodeId("thief"))


def process_on_a_foreign_lease(bench: Bench) -> None:
    bench.offered(peer=NodeId("other"))
    bench.start()


def preemption_counted(bench: Bench) -> None:
    bench.submitted()
    bench.assigned()
    report = Report(attempt=FIRST, lease=LeaseId("w/1/1"), outcome=Outcome("preempted"))
    bench.tell(bench.scheduler, W, report)
    bench.safe(Returned(GROUP.tasks[0].id, FIRST, 1, 0))


def job_never_ends(bench: Bench) -> None:
    accepted(bench)
    bench.suite.violations.found.clear()
    bench.agenda.stopped = False
    bench.submitted()
    bench.ending().run(0.0)


def room_is_never_given_back(bench: Bench) -> None:
    bench.beliefs.workers[W] = msgspec.structs.replace(IDLE, idle=False)
    bench.ending().run(0.0)


def report_is_never_told(bench: Bench) -> None:
    bench.beliefs.workers[W] = msgspec.structs.replace(IDLE, unacknowledged=1)
    bench.ending().run(0.0)


def view_stays_wrong(bench: Bench) -> None:
    bench.beliefs.workers[W] = IDLE
    bench.beliefs.seen[W] = Load(cpu_milli=7)
    bench.ending().run(0.0)


def cancelled_job_runs_on(bench: Bench) -> None:
    accepted(bench)
    bench.suite.violations.found.clear()
    bench.agenda.stopped = False
    bench.submitted()
    bench.offered()
    bench.send(
        bench.worker, S, Committed(request=RequestId("r"), leases=(LeaseId("w/1/1"),))
    )
    commit = Commit(request=RequestId("r"), leases=(LeaseId("w/1/1"),), lease_s=120.0)
    bench.tell(bench.worker, S, commit)
    bench.start()
    bench.clients.orders[JOB.id].cancelled_at = 0.0
    bench.ending().run(0.0)


def held_report_is_forgotten(bench: Bench) -> None:
    bench.submitted()
    bench.assigned()
    bench.suite.facts[OutputsFetched](bench.scheduler, OutputsFetched(FIRST), [])


def report_is_held_for_ever(bench: Bench) -> None:
    bench.beliefs.reports_held = 1
    bench.ending().run(0.0)


@pytest.mark.parametrize(
    ("story", "promise"),
    [
        (acknowledged_but_not_on_disk, "I1"),
        (submitted_twice, "I1"),
        (submit_refused, "I2"),
        (job_never_ends, "L1"),
        (finished_twice, "I3"),
        (done_without_a_process, "I3"),
        (report_acknowledged_but_not_on_disk, "I3"),
        (report_is_never_told, "I3"),
        (generation_used_before_it_is_safe, "I4"),
        (generation_used_twice, "I4"),
        (ended_by_a_fenced_attempt, "I4"),
        (one_attempt_runs_twice, "I4"),
        (started_after_it_was_called_back, "I4"),
        (device_used_twice, "I5"),
        (more_cpu_than_there_is, "I5"),
        (lease_kept_beyond_its_end, "I6"),
        (renewed_by_somebody_else, "I6"),
        (process_outlives_its_lease, "I6"),
        (room_is_never_given_back, "I7"),
        (six_workers_taken_down, "I8"),
        (container_without_bound, "I9"),
        (stranger_obeyed, "I10"),
        (lease_offered_to_two, "I10"),
        (process_on_a_foreign_lease, "I10"),
        (view_stays_wrong, "I12"),
        (cancelled_job_runs_on, "L3"),
        (held_report_is_forgotten, "O2"),
        (report_is_held_for_ever, "O2"),
        (preemption_counted, "PREEMPTION"),
        (offered_beyond_the_quota, "QUOTA"),
        (leased_beyond_the_quota_within_a_node, "QUOTA"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_promise_is_noticed(
    story: Callable[[Bench], None], promise: str
) -> None:
    bench = Bench()

    story(bench)

    assert bench.broken[:1] == [promise]
    assert bench.agenda.stopped


def test_an_offer_that_is_repeated_says_nothing_of_what_others_got_since() -> None:
    bench = Bench()
    q = NodeId("q")
    bench.stage.add("q", roles=("scheduler",), grant=FEW_CPUS)
    bench.beliefs.held = [lease_of(q, "held", Allocation(cpu_milli=500))]
    bench.demanded(q)

    bench.beliefs.held *= 2
    bench.demanded(q)

    assert bench.broken == []


@pytest.mark.parametrize("trees", [{}, {ALL_OUTPUTS: "w/tree/1"}])
def test_a_result_without_its_outputs_is_noticed(trees: dict[str, str]) -> None:
    bench = Bench(with_work(JOB, OUTPUTS))
    bench.submitted()
    bench.assigned()
    process = bench.start()
    process.exit_code = 0
    bench.suite.reaped(bench.worker, process)
    outcome = msgspec.structs.replace(DONE, outputs=trees)

    bench.suite.violations.found.clear()  # It ran on a lease that nobody offered.
    bench.safe(Finished(GROUP.tasks[0].id, "done", FIRST, outcome))

    assert bench.broken == ["O1"]


def test_a_task_that_may_run_only_once_is_not_found_running_twice() -> None:
    once = msgspec.structs.replace(JOB, at_most_once=True)
    bench = Bench(once)
    bench.offered()

    bench.start(FIRST)
    assert bench.broken == []
    bench.start(SECOND)

    assert bench.broken == ["I6"]


def test_a_gang_is_not_found_starting_in_part() -> None:
    gang = msgspec.structs.replace(GROUP, gang_min=2)
    bench = Bench(msgspec.structs.replace(JOB, groups=(gang,)))
    bench.submitted()
    bench.offered()
    committed = Committed(request=RequestId("r"), leases=(LeaseId("w/1/1"),))
    bench.send(bench.worker, S, committed)
    bench.assigned()

    message = Assignment(lease=LeaseId("w/1/1"), attempt=FIRST, task=gang.tasks[0])
    bench.send(bench.scheduler, W, message)

    assert bench.broken == ["GANG"]


def test_an_honest_story_breaks_no_promise() -> None:
    bench = Bench()
    bench.submitted()
    accepted(bench)
    bench.offered()
    committed = Committed(request=RequestId("r"), leases=(LeaseId("w/1/1"),))
    bench.send(bench.worker, S, committed)
    bench.assigned()
    message = Assignment(lease=LeaseId("w/1/1"), attempt=FIRST, task=GROUP.tasks[0])
    bench.send(bench.scheduler, W, message)
    process = bench.start()
    process.exit_code = 0
    del bench.worker.driver.processes[process.pid]
    bench.suite.reaped(bench.worker, process)
    bench.finished("done")
    bench.send(bench.scheduler, W, Acknowledgement(attempts=(FIRST,)))
    bench.safe(Cancelled(JOB.id))
    bench.beliefs.workers[W] = IDLE
    bench.beliefs.seen[W] = IDLE.load

    bench.ending().run(bench.agenda.now)

    assert bench.broken == []


def test_a_stranger_may_be_refused_and_cut_off() -> None:
    bench = Bench()
    thief = NodeId("thief")
    bench.suite.suspect(thief)
    event = MessageReceived(thief, Renew(leases=(), lease_s=1.0))

    effects: list[Effect] = [Send(thief, Refusal()), Disconnect(thief, "no grant")]
    bench.suite.suspects[thief](bench.worker, event, effects)

    assert bench.broken == []
