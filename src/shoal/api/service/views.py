"""Views of a node's jobs, tasks and workers, as API messages."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, get_args

from shoal.api import shoal_pb2 as pb
from shoal.api.results import name_of_task
from shoal.api.service import callers
from shoal.api.service.lending_words import lending_now
from shoal.api.service.network_words import add_place, network_words
from shoal.core.negotiation.held_leases import shape_of
from shoal.core.records import census
from shoal.core.verification.answer_history import answers_of, standing_of, trust_text
from shoal.errors import UsageError
from shoal.model.addresses import direct_ones
from shoal.model.gpu import format_gpu
from shoal.model.ids import NodeId
from shoal.model.job import JobState, TaskState
from shoal.model.kinds import driver_of
from shoal.model.resources import GIB, Capacity, Profile
from shoal.model.totals import amounts_of
from shoal.net.identity.petname import petname
from shoal.policy.hopeless import NODES_UNKNOWN
from shoal.policy.interface import GangNeed
from shoal.policy.planning import plan
from shoal.policy.registry import DEFAULT, Registry
from shoal.runtime.monitoring.seen_members import WORDS
from shoal.runtime.wall_clock import zone_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from shoal.core.negotiation.held_leases import LeaseShape
    from shoal.core.records.records import JobRecord, TaskRecord
    from shoal.core.scheduling.explanations import TaskExplanation
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.scheduler import Scheduler
    from shoal.model.ids import TaskId
    from shoal.model.job import Group, Job, PythonNeed, Schedule, Task
    from shoal.net.link_selector import LinkSelector
    from shoal.policy.interface import Policy
    from shoal.policy.planning import Prospect
    from shoal.policy.table.worker_table import WorkerView
    from shoal.runtime.admission.admission_desk import AdmissionDesk
    from shoal.runtime.admission.local_network import LocalNetwork
    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.node import Node

TASKS_SHOWN_MAX: Final = 1_000
NODES_OF_A_JOB_MAX: Final = 64
REJECTIONS_SHOWN_MAX: Final = 1_000
WAITING_LOOKS_MAX: Final = 2_000
"""Workers to compare with waiting jobs, in total, for one list of jobs."""

WORKERS_FEW: Final = 50
NOBODY: Final = "no worker is known here"
LET_IN: Final = "shoal invite, and shoal join on a machine that lends something"

STATES: Final[dict[TaskState | JobState, pb.State]] = {
    "blocked": pb.STATE_BLOCKED,
    "waiting": pb.STATE_WAITING,
    "running": pb.STATE_RUNNING,
    "done": pb.STATE_DONE,
    "failed": pb.STATE_FAILED,
    "cancelled": pb.STATE_CANCELLED,
    "unknown": pb.STATE_UNKNOWN,
}


def states_of(numbers: Collection[int]) -> frozenset[TaskState]:
    """Return the states of tasks that have these numbers on the wire."""
    return frozenset(each for each in get_args(TaskState) if STATES[each] in numbers)


def name_of(node: NodeId) -> pb.NodeName:
    """Return the id and petname of a node."""
    return pb.NodeName(id=node, petname=petname(node))


def job_view(node: Node, record: JobRecord) -> pb.Job:
    """Return a job, without its tasks."""
    scheduler = node.peer.scheduler
    assert scheduler is not None
    job, book = record.job, scheduler.book
    records, counts = census.examples_of(book, job), census.counts_of(book, job)
    state = node.state_of(job.id) or "active"
    view = pb.Job(
        id=job.id,
        name=job.name,
        owner=job.owner,
        state=STATES[_liveliest(counts) if state == "active" else state],
        reason=_reason(record, records, state) or _first_told(node, records),
        priority=job.priority,
        number=record.number if callers.current().is_own else 0,  # It counts all jobs.
        submitted_s=record.wall_s,
        began_s=census.began_wall_s(book, job),
        ended_s=0.0 if state == "active" else census.ended_wall_s(book, job),
        counts=pb.Counts(**{str(state): n for state, n in counts.items()}),
        nodes=map(name_of, _nodes(records)),
    )
    if state == "active" and job.schedule is not None:
        _add_schedule(scheduler, record, view)
    if job.occurrence is not None:
        view.scheduled_by = job.occurrence.schedule
    if record.parent is not None:
        view.parent, view.detached = record.parent.task, record.parent.detached
    view.keepers.extend(
        pb.Keeper(node=name_of(keeper.node), whole=keeper.whole, away=keeper.away)
        for keeper in scheduler.succession.keepers_of(job.id)
    )
    if (code := _exit_code(records, state)) is not None:
        view.exit_code = code
    aims = (group.objective for group in job.groups if group.objective is not None)
    if (aim := next(aims, None)) is not None:
        view.objective.CopyFrom(pb.Objective(metric=aim.metric, goal=aim.goal))
    if len(records) == 1:
        _add_fraction(node, view, records[0].task.id)
    return view


def _add_schedule(scheduler: Scheduler, record: JobRecord, view: pb.Job) -> None:
    """Add what a schedule has started, and when it runs next."""
    said, known = record.job.schedule, scheduler.book.schedules[record.job.id]
    assert said is not None
    view.schedule.CopyFrom(
        schedule_view(said, scheduler.schedules.next_run(record.job.id))
    )
    view.schedule.runs, view.schedule.last = known.runs, known.last
    view.schedule.skipped = known.skipped
    view.state = pb.STATE_SCHEDULED
    skipped = f"; {moment(said, known.settled_s)} was skipped: {known.skipped}"
    view.reason = _next_text(view.schedule, said) + (skipped if known.skipped else "")


def schedule_view(said: Schedule, next_s: float | None) -> pb.Schedule:
    """Return a schedule and when it runs next."""
    return pb.Schedule(cron=said.cron, timezone=said.timezone, next_s=next_s or 0.0)


def _next_text(view: pb.Schedule, said: Schedule) -> str:
    if not view.next_s:
        return f"it does not run: there is no time zone {said.timezone} here"
    return f"next run {moment(said, view.next_s)}"


def moment(said: Schedule, wall_s: float) -> str:
    """Format a time in the zone of a schedule."""
    at = datetime.fromtimestamp(wall_s, zone_of(said.timezone) or UTC)
    return f"{at:%Y-%m-%d %H:%M} {said.timezone}"


def job_state(node: Node, record: JobRecord) -> pb.State:
    """Return the state of a job, as `job_view` shows it."""
    scheduler = node.peer.scheduler
    assert scheduler is not None
    state = node.state_of(record.job.id) or "active"
    if state != "active":
        return STATES[state]
    if record.job.schedule is not None:
        return pb.STATE_SCHEDULED
    return STATES[_liveliest(census.counts_of(scheduler.book, record.job))]


STEPS_MAX: Final = 100


def add_steps(book: JobBook, record: JobRecord, view: pb.Job) -> None:
    """Add what a job is made of: its steps, their commands and environments."""
    groups = record.job.groups
    view.more_steps = max(0, len(groups) - STEPS_MAX)
    for group in groups[:STEPS_MAX]:
        first = group.tasks[0]
        work = first.work
        counts = census.counts_in(book, book.groups[group.id])
        view.steps.add(
            name=group.id.partition(".")[2],
            after=(needed.partition(".")[2] for needed in group.needs),
            counts=pb.Counts(**{str(state): n for state, n in counts.items()}),
            argv=work.argv,
            recipe=work.recipe,
            setup=work.setup,
            env=work.env,
            secrets=work.secrets,
            outputs=work.outputs,
            image=work.image,
            needs=needs_of(first),
            time_limit_s=first.time_limit_s or 0.0,
            network=work.network,
            gang_min=group.gang_min,
            driver=work.driver,
            python=_python_text(work.python),
            mounts=work.mounts,
            caches=work.caches,
        )


def _python_text(need: PythonNeed) -> str:
    """Say which Python environment a step runs in."""
    if need.name:
        return need.name
    parts = [f"Python {need.version}"] if need.version else []
    parts += [", ".join(need.packages)] if need.packages else []
    parts += ["files of the project"] if need.files else []
    return ": ".join(parts)


def task_view(node: Node, record: TaskRecord) -> pb.Task:
    """Return a task."""
    task = record.task
    view = pb.Task(
        id=task.id,
        state=STATES[record.state],
        reason=_task_reason(record) or _moving(node, record) or _cut(node, record),
        made=node.outputs.made(task.id),
        attempts=record.attempts,
        nodes=map(name_of, _nodes([record])),
        argv=task.work.argv,
        recipe=task.work.recipe,
        needs=needs_of(task),
        began_s=record.began_wall_s,
        ended_s=record.ended_wall_s,
        answers=_answers(answers_of(record)),
        label=task.label,
        params={name: json.dumps(value) for name, value in task.params.items()},
    )
    if record.outcome is not None and record.outcome.exit_code is not None:
        view.exit_code = record.outcome.exit_code
    view.metrics.update(node.outputs.metrics.latest(task.id))
    _add_fraction(node, view, task.id)
    return view


def _add_fraction(node: Node, view: pb.Job | pb.Task, task: TaskId) -> None:
    if (fraction := node.outputs.fraction(task)) is not None:
        view.fraction = fraction


def _answers(answers: Iterable[tuple[NodeId, str]]) -> list[pb.Verdict]:
    return [pb.Verdict(node=name_of(node), reason=said) for node, said in answers]


def _first_told(node: Node, records: list[TaskRecord]) -> str:
    told = (_moving(node, record) or _cut(node, record) for record in records)
    return next(filter(None, told), "")


def _cut(node: Node, record: TaskRecord) -> str:
    """Return a note if the output of a task is incomplete here."""
    return node.outputs.trouble(record.task.id)


def _moving(node: Node, record: TaskRecord) -> str:
    """Return which code, data or outputs are being moved for a running task."""
    return node.outputs.moving(record.task.id) if record.state == "running" else ""


def needs_of(task: Task) -> str:
    """Return the resources that a task needs, as text for users."""
    needs = " or ".join(map(_need, task.profiles))
    return f"{needs} · a node of its own" if task.alone else needs


def _need(profile: Profile) -> str:
    gpu = profile.gpu
    amounts = str(amounts_of(profile))
    is_plain = gpu is None or format_gpu(gpu) == f"{gpu.count}"
    return amounts if is_plain else f"{amounts} ({format_gpu(gpu)})"


SOURCES: Final = {
    "spec": "declared",
    "recipe": "estimated from its params",
    "runs": "seen in an earlier run",
}


def memory_words(task: Task) -> list[str]:
    """Return how much memory a task needs, and who says so."""
    if len(task.profiles) != 1:
        return []
    profile, gpu = task.profiles[0], task.profiles[0].gpu
    told: list[str] = []
    if need := profile.memory_bytes:
        told.append(f"memory {need / GIB:.1f} GiB: {SOURCES[task.memory_from]}")
    if gpu is not None and (need := gpu.memory_min_bytes):
        source = SOURCES[task.gpu_memory_from]
        told.append(f"memory of each GPU {need / GIB:.1f} GiB: {source}")
    return told


def explanation_view(found: TaskExplanation, task: Task) -> pb.TaskExplanation:
    """Return why a task waits, or runs where it does."""
    placement = found.placement
    rejected = placement.rejected[:REJECTIONS_SHOWN_MAX] if placement else ()
    view = pb.TaskExplanation(
        task=found.task,
        label=task.label,
        state=STATES[found.state],
        why=found.why,
        nodes=map(name_of, found.workers),
        refused=[pb.Verdict(node=name_of(n), reason=why) for n, why in found.refused],
        rejected=[pb.Verdict(node=name_of(r.node), reason=r.reason) for r in rejected],
        fitting=placement.fitting if placement else 0,
        helps=placement.helps if placement else (),
        needs=needs_of(task),
        cached=found.cached,
        answers=_answers(found.answers),
    )
    if placement and not placement.fitting and not placement.rejected:
        view.why.append(NOBODY)
        view.helps.append(LET_IN)
    return view


def say_why(node: Node, shown: Sequence[tuple[JobRecord, pb.Job]]) -> None:
    """Fill in what waiting jobs wait for; only for the newest if many wait."""
    scheduler = node.peer.scheduler
    assert scheduler is not None
    left = max(1, WAITING_LOOKS_MAX // max(WORKERS_FEW, len(scheduler.views.table)))
    for record, view in reversed(shown):
        if view.state == pb.STATE_WAITING and (missed := away(node, record.job)):
            view.reason = missed[0]
        if left and view.state == pb.STATE_WAITING and not view.reason:
            left -= 1
            lag = lagging(scheduler.book, record)
            task = next(each for each in lag if each.state == "waiting")
            if said := scheduler.explain(task.task.id):
                view.reason = _in_brief(said)


def away(node: Node, job: Job) -> list[str]:
    """Say which nodes a job waits for, if none of those it names is here."""
    scheduler = node.peer.scheduler
    assert scheduler is not None
    known = scheduler.views.table
    if not job.nodes or any(known.view(each) is not None for each in job.nodes):
        return []
    seen = dict(node.seen.away())
    return [
        f"{petname(each)} is away"
        + (f": {WORDS[seen[each].how]}" if each in seen else "")
        + "; the job runs only there"
        for each in job.nodes
    ]


def say_away(view: pb.TaskExplanation, node: Node, job: Job) -> None:
    """Put first which nodes a task waits for; it knows more than that they are gone."""
    if missed := away(node, job):
        others = [why for why in view.why if why != NODES_UNKNOWN]
        del view.why[:]
        view.why.extend([*missed, *others])


def _in_brief(found: TaskExplanation) -> str:
    placement = found.placement
    if found.why or placement is None or placement.fitting:
        return next(iter(found.why), "")
    total = len(placement.rejected)
    if not total:
        return NOBODY
    reason, count = placement.summary[0]
    return reason if count == total else f"{reason} at {count} of {total} nodes"


def lagging(book: JobBook, record: JobRecord) -> list[TaskRecord]:
    """Return the least advanced task of each group of a job."""
    order = ("waiting", "blocked", "running", "unknown", "failed", "cancelled", "done")
    return [
        min(
            census.examples_in(book, book.groups[group.id]),
            key=lambda task: order.index(task.state),
        )
        for group in record.job.groups
    ]


def nodes_view(node: Node, links: LinkSelector[Any, Any]) -> list[pb.Node]:
    """Return this node, all known workers, and other linked nodes."""
    scheduler = node.peer.scheduler
    views: dict[NodeId, WorkerView] = {}
    if scheduler is not None:
        table = scheduler.views.table
        found = [table.view(each) for each in table.nodes()]
        views = {view.node: view for view in found if view is not None}
    others = [_node_view(node, view) for id_, view in views.items() if id_ != node.id]
    silent = [each for each in links.peers if each not in views]
    members = [pb.Node(name=name_of(each)) for each in silent]
    for each in (*others, *members):
        peer = NodeId(each.name.id)
        _add_standing(node, each)
        each.path = links.path(peer)
        add_place(node, each, peer)
        if (rtt_s := links.rtt_s(peer)) is not None:
            each.rtt_us = max(1, round(rtt_s * 1e6))
    own = self_view(node)
    add_place(node, own, node.id)
    return [own, *others, *members]


def _add_standing(node: Node, view: pb.Node) -> None:
    """Add a worker's standing, if its results were compared here."""
    scheduler = node.peer.scheduler
    if scheduler is None:
        return
    book, wall_s = scheduler.book, time.time()
    if found := standing_of(book.standings, NodeId(view.name.id), wall_s):
        trust, judged, disagreed = found
        view.standing.CopyFrom(
            pb.Standing(
                trust=trust,
                judged=judged,
                disagreed=disagreed,
                text=trust_text(trust, judged, disagreed),
            )
        )


def network_view(network: NodeNetwork) -> pb.NetworkInfo:
    """Return how this node is connected to other nodes."""
    links = network.links
    gates = [
        pb.Gate(
            name=name_of(gate),
            path=links.path(gate),
            rtt_us=round((links.rtt_s(gate) or 0.0) * 1e6),
            trouble="" if links.path(gate) else links.trouble(gate),
        )
        for gate in network.gates
    ]
    return pb.NetworkInfo(
        p2p=network.p2p_state,
        relays=network.is_gate,
        gates=gates,
        links=len(links.peers),
        is_relayed=not direct_ones(links.addresses),
    )


def self_view(node: Node) -> pb.Node:
    """Return this node, from the state of its own worker."""
    worker = node.peer.worker
    if worker is None:
        return pb.Node(name=name_of(node.id), self=True, path="self")
    ledger = worker.leases.ledger
    capacity = ledger.capacity
    return pb.Node(
        name=name_of(node.id),
        self=True,
        path="self",
        worker=True,
        total=_amounts(capacity),
        free=pb.Amounts(
            cpu_milli=ledger.cpu_milli,
            memory_bytes=ledger.memory_bytes,
            disk_bytes=ledger.disk_bytes,
            gpu_milli=sum(ledger.milli.values()),
        ),
        devices=_devices(capacity, [ledger.milli[d.id] for d in capacity.devices]),
        active=len(node.tasks),
        draining=worker.load.draining,
        drivers=node.settings.rules.drivers,
        networked=node.settings.rules.drivers,
        terms=worker.terms.for_strangers,
        taken=worker.lender.room.words,
        withheld=pb.Amounts(
            memory_bytes=worker.leases.withheld.memory_bytes,
            disk_bytes=worker.leases.withheld.disk_bytes,
        ),
        lend=str(worker.rules.lend),
        lending=lending_now(worker),
        others_cpu_milli=worker.lender.room.cpu_milli,
        weaker=worker.terms.weaker,
        labels=dict(capacity.labels),
    )


def _node_view(node: Node, view: WorkerView) -> pb.Node:
    return pb.Node(
        name=name_of(view.node),
        self=view.node == node.id,
        worker=True,
        total=_amounts(view.capacity),
        free=pb.Amounts(
            cpu_milli=view.cpu_milli,
            memory_bytes=view.memory_bytes,
            disk_bytes=view.disk_bytes,
            gpu_milli=sum(view.gpu_milli),
        ),
        devices=_devices(view.capacity, view.gpu_milli),
        active=view.active,
        draining=view.draining,
        drivers=[each for each in view.drivers if each == driver_of(each)],
        networked=[driver_of(e) for e in view.drivers if e != driver_of(e)],
        terms=view.terms,
        weaker=view.weaker,
        labels=dict(view.capacity.labels),
        rtt_us=view.path_cost_us,
    )


def _amounts(capacity: Capacity) -> pb.Amounts:
    return pb.Amounts(
        cpu_milli=capacity.cpu_milli,
        memory_bytes=capacity.memory_bytes,
        disk_bytes=capacity.disk_bytes,
        gpu_milli=1_000 * len(capacity.devices),
    )


def _devices(capacity: Capacity, free: Iterable[int]) -> list[pb.Device]:
    return [
        pb.Device(
            id=device.id,
            vendor=device.vendor,
            model=device.model,
            memory_bytes=device.memory_bytes,
            free_milli=milli,
        )
        for device, milli in zip(capacity.devices, free, strict=True)
    ]


def _liveliest(counts: Mapping[TaskState, int]) -> TaskState:
    states: tuple[TaskState, ...] = ("running", "waiting", "blocked")
    for state in states:
        if counts.get(state):
            return state
    return "running"  # All ended, but not yet on disk.


def _nodes(records: Iterable[TaskRecord]) -> list[NodeId]:
    """Return the nodes that run tasks, or that ran them if all have ended.

    A worker that was sent a task may still refuse it: it is named once it has begun.
    """
    records = list(records)
    live = [run for task in records for run in task.live.values()]
    runs = [run.worker for run in live if run.has_begun]
    if not live and all(task.ended for task in records):
        runs = [task.worker for task in records if task.worker]
    return list(dict.fromkeys(runs))[:NODES_OF_A_JOB_MAX]


def _task_reason(record: TaskRecord) -> str:
    return record.reason or (record.outcome.reason if record.outcome else "")


def _reason(record: JobRecord, records: list[TaskRecord], state: str) -> str:
    if record.reason:
        return record.reason
    if state == "done":  # Earlier trouble no longer matters.
        telling = [task for task in records if task.outcome and task.outcome.reason]
    else:
        telling = [task for task in records if _task_reason(task) not in ("", state)]
    if not telling:
        return ""
    alike = [task for task in telling if task.state == state]
    # What failed first is the cause; the others may have failed because of it.
    worst = min(alike or telling, key=lambda task: task.ended_wall_s)
    name = name_of_task(worst.task.id, worst.task.label)
    return ("" if len(records) == 1 else f"{name}: ") + _task_reason(worst)


def _exit_code(records: list[TaskRecord], state: str) -> int | None:
    if state == "done":
        return 0
    if state != "failed":
        return None
    outcomes = [task.outcome for task in records if task.state == "failed"]
    codes = (outcome.exit_code for outcome in outcomes if outcome is not None)
    return next((code for code in codes if code), None)


def requests_view(
    node: Node, desk: AdmissionDesk, near: LocalNetwork
) -> pb.RequestsReply:
    """Return requests to join: those of others, and this node's own."""
    reply = pb.RequestsReply(
        shoal=node.membership.shoal,
        newcomers=[
            pb.Newcomer(name=name_of(one.node), has=one.has, code=one.code)
            for one in desk.waiting
        ],
    )
    join = near.join
    if join is not None and join.near is not None:
        found = join.near
        reply.near.name.CopyFrom(name_of(found.node))
        reply.near.shoal, reply.near.code = found.shoal, join.code
        reply.near.state = join.state
    return reply


def curves_view(node: Node, record: JobRecord, since_s: float) -> pb.CurvesReply:
    """Return metrics that a job's tasks reported after `since_s`."""
    reply = pb.CurvesReply()
    for task in islice(record.job.tasks(), CURVES_TASKS_MAX):
        for name, points in node.outputs.metrics.curves.since(task.id, since_s).items():
            times, steps, values = zip(*points, strict=True)
            reply.curves.add(
                task=task.id, name=name, at_s=times, steps=steps, values=values
            )
    return reply


CURVES_TASKS_MAX: Final = 10_000
PROSPECTS_MAX: Final = 50
GROUPS_MAX: Final = 20
WHEN: Final = {
    "now": pb.Prospect.WHEN_NOW,
    "later": pb.Prospect.WHEN_LATER,
    "never": pb.Prospect.WHEN_NEVER,
}


def plan_view(node: Node, job: Job, nodes: list[pb.Node]) -> list[pb.GroupPlan]:
    """Return where each group of a job would go; `nodes` are views to include."""
    name = job.policy or node.settings.policy
    policy = Registry().make(name or DEFAULT)
    shown = {each.name.id: each for each in nodes}
    groups = job.groups[:GROUPS_MAX]
    return [_group(node, job, group, policy, shown) for group in groups]


def begins_in_time(group: pb.GroupPlan) -> bool:
    """Whether a group can begin now, or later if others must end before it."""
    if group.room >= group.least:
        return True
    soon = (each for each in group.prospects if each.when != pb.Prospect.WHEN_NEVER)
    return bool(group.after) and next(soon, None) is not None


def _group(
    node: Node, job: Job, group: Group, policy: Policy, shown: dict[str, pb.Node]
) -> pb.GroupPlan:
    scheduler = node.peer.scheduler
    if scheduler is None:
        raise UsageError(
            "this node does not schedule",
            because="it has no role for that",
            hint="ask a node that submits jobs",
        )
    first, table = group.tasks[0], scheduler.views.table
    shapes: list[LeaseShape] = []
    if not group.gang_min:  # A gang always needs new leases.
        shapes = [shape_of(job, first, n) for n in range(len(first.profiles))]
    gang = GangNeed(len(group.tasks)) if group.gang_min else None
    with table.freed(scheduler.holdings.idle_besides(shapes)):
        found = plan(
            first,
            len(group.tasks),
            table,
            policy,
            Random(0),
            idle=[scheduler.holdings.idle_at(shape) for shape in shapes],
            nodes=job.nodes,
            rtt_max_us=shape_of(job, first, 0).rtt_max_us,
            gang=gang,
        )
    return pb.GroupPlan(
        group=group.id.partition(".")[2],
        tasks=len(group.tasks),
        needs=needs_of(first),
        least=max(1, group.gang_min),
        room=found.room,
        prospects=[_prospect(p, shown) for p in found.prospects[:PROSPECTS_MAX]],
        more=max(0, len(found.prospects) - PROSPECTS_MAX),
        helps=found.helps,
        never="; ".join(away(node, job))
        or found.never
        or scheduler.too_large(group, job),
        after=(needed.partition(".")[2] for needed in group.needs),
        network=network_words(node, found.chosen) if group.gang_min else (),
        memory=memory_words(first),
    )


def _prospect(prospect: Prospect, shown: dict[str, pb.Node]) -> pb.Prospect:
    known = shown.get(prospect.node)
    return pb.Prospect(
        node=known or pb.Node(name=name_of(prospect.node)),
        when=WHEN[prospect.when],
        slots=prospect.slots,
        why=prospect.why,
    )
