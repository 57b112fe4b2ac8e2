"""What can happen in a scenario, one line each, and the events that these lines mean.

A line is `subject verb words key=value flags`. The subject is a peer, whose message
or link it is, or `task ATTEMPT`, `owner`, `client`, `lookup`: what the host tells.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from tests.fake_keys import revoked

from shoal.core import events
from shoal.core.artifacts.events import (
    CheckpointKept,
    CheckpointMissed,
    OutputsFetched,
    OutputsLost,
    StagingEnded,
)
from shoal.core.lending.events import (
    DeviceMeasured,
    LendingEvent,
    MachineMeasured,
    OwnerObserved,
)
from shoal.model.ids import (
    Attempt,
    BlobId,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    RequestId,
    TaskId,
)
from shoal.model.job import (
    Group,
    Job,
    Objective,
    PythonNeed,
    Retry,
    Task,
    Verify,
    Work,
)
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.protocol import messages as m
from shoal.protocol.succession.messages import Adoption, Claim


class Line(msgspec.Struct, frozen=True):
    """One command, cut into its words."""

    text: str
    words: tuple[str, ...]
    options: dict[str, str]

    @classmethod
    def cut(cls, text: str) -> "Line":
        """Tell words from options."""
        words: list[str] = []
        options: dict[str, str] = {}
        for part in text.split():
            key, equals, value = part.partition("=")
            if equals:
                options[key] = value
            else:
                words.append(part)
        return cls(text, tuple(words), options)

    def has(self, flag: str) -> bool:
        """Whether a word without a value is there."""
        return flag in self.words

    def number(self, key: str, default: float) -> float:
        """Return an option as a number."""
        return float(self.options.get(key, default))

    def count(self, key: str, default: int) -> int:
        """Return an option as a whole number."""
        return int(self.options.get(key, default))


def attempt(text: str) -> Attempt:
    """Read an attempt as it is written: scheduler:generation.sequence."""
    scheduler, _, numbers = text.partition(":")
    generation, _, sequence = numbers.partition(".")
    return Attempt(NodeId(scheduler), int(generation), int(sequence))


def profile(line: Line) -> Profile:
    """Read the need of one task."""
    gpus = line.count("gpu", 0)
    return Profile(
        cpu_milli=round(line.number("cpu", 0) * 1000),
        memory_bytes=round(line.number("memory", 0) * GIB),
        gpu=GpuNeed(gpus, gpus) if gpus else None,
        uses=listed(line, "uses"),
    )


def capacity(line: Line) -> Capacity:
    """Read what a worker has."""
    gpus = range(line.count("gpu", 0))
    return Capacity(
        cpu_milli=round(line.number("cpu", 0) * 1000),
        memory_bytes=round(line.number("memory", 64) * GIB),
        devices=tuple(Device(f"gpu{n}", memory_bytes=8 * GIB) for n in gpus),
        lends=listed(line, "lends"),
    )


def load(line: Line) -> m.Load:
    """Read what is free on a worker."""
    has = capacity(line)
    return m.Load(
        cpu_milli=has.cpu_milli,
        memory_bytes=has.memory_bytes,
        gpu_milli=(1000,) * len(has.devices),
        gpu_memory=tuple(d.memory_bytes for d in has.devices),
        active=line.count("active", 0),
        draining=line.has("draining"),
    )


def outcome(line: Line, words: tuple[str, ...]) -> m.Outcome:
    """Read how an attempt ended: `exits 0`, or any other kind by its name."""
    tree, claim = line.options.get("outputs", ""), line.options.get("claims", "")
    outputs = {m.ALL_OUTPUTS: tree} if tree else {}
    if words[0] == "exits":
        code = int(words[1])
        return m.Outcome("exited", exit_code=code, outputs=outputs, digest=claim)
    reason = line.options.get("reason", "")
    told = {"kind": words[0], "reason": reason, "outputs": outputs}
    return msgspec.convert(told, m.Outcome)


def leases(line: Line, start: int = 3) -> tuple[LeaseId, ...]:
    """Read the leases that a line names: whatever has two slashes in it."""
    named = [word for word in line.words[start - 1 :] if word.count("/") == 2]
    return tuple(LeaseId(word.partition("@")[0]) for word in named)


def driver_opened(line: Line) -> events.DriverOpened:
    """Read what a driver has found out; a reason is a word."""
    told = {"driver": line.options.get("name", "process"), **line.options}
    told.pop("name", None)
    return msgspec.convert(told, events.DriverOpened)


# From a scheduler to a worker.


def _demand(peer: NodeId, line: Line) -> m.Demand:
    request = RequestId(line.words[2])
    priority = line.count("priority", 0)
    return m.Demand(
        request=request,
        profile=profile(line),
        count=line.count("count", 1),
        rank=m.Rank(priority, line.number("age", 0), peer, request),
        driver=line.options.get("driver", "process"),
        preempt=line.has("preempt"),
        preemptible=not line.has("keep"),
        owner=OwnerId(line.options.get("owner", "")),
        wait_for_s=line.number("wait", 0),
        network=line.has("network"),
        devices=tuple(filter(None, line.options.get("devices", "").split(","))),
        claim=line.has("claim"),
    )


def _commit(_: NodeId, line: Line) -> m.Commit:
    request = RequestId(line.words[2])
    return m.Commit(
        request=request, leases=leases(line), lease_s=line.number("for", 15)
    )


def _assign(_: NodeId, line: Line) -> m.Assignment:
    task = Task(
        id=TaskId(line.options.get("task", "t")),
        job=JobId(line.options.get("job", "j")),
        group=GroupId("j.g"),
        work=Work(
            driver=line.options.get("driver", "process"),
            network=line.has("network"),
            workdir=line.options.get("workdir", ""),
            python=PythonNeed(packages=listed(line, "python")),
            setup=listed(line, "setup"),
            mounts=listed(line, "mounts"),
            stdin="pipe" if line.has("stdin") else "none",
        ),
        grace_s=line.number("grace", 10),
        time_limit_s=line.number("limit", 0) or None,
    )
    gang = line.options.get("gang", "")
    return m.Assignment(
        gang=tuple(NodeId(node) for node in gang.split(",") if node),
        lease=LeaseId(line.words[3]),
        attempt=attempt(line.words[2]),
        task=task,
        after=_named(line, "after"),
        checkpoint=BlobId(line.options.get("from", "")),
        receipts=True,
        term=line.count("term", 0),
        members=tuple(map(NodeId, listed(line, "members"))),
    )


def _adopt(_: NodeId, line: Line) -> Adoption:
    claim = Claim(
        attempt(line.words[2]), attempt(line.words[4]), LeaseId(line.words[5])
    )
    term = line.count("term", 0)
    return Adoption(job=JobId("j"), term=term, lease_s=90.0, claims=(claim,))


def listed(line: Line, option: str) -> tuple[str, ...]:
    """Read words with commas between them."""
    return tuple(word for word in line.options.get(option, "").split(",") if word)


def _cancel(_: NodeId, line: Line) -> m.Cancel:
    return m.Cancel(
        attempt=attempt(line.words[2]),
        lease=LeaseId(line.words[3]),
        grace_s=line.number("grace", 0),
        unless_started=line.has("unless-started"),
    )


def _announce(peer: NodeId, line: Line) -> m.Announcement:
    want = m.Want(profile(line), line.count("count", 1))
    name = NodeId(line.options.get("as", peer))
    return m.Announcement(scheduler=name, seq=line.count("seq", 0), wants=(want,))


# From a worker to a scheduler.


def _renew(_: NodeId, line: Line) -> m.Renew:
    ages = [w.split("@") for w in line.options.get("saved", "").split(",") if w]
    return m.Renew(
        leases=leases(line),
        lease_s=line.number("for", 15),
        saved=tuple(m.SavedAge(LeaseId(lease), float(age)) for lease, age in ages),
    )


def _has(_: NodeId, line: Line) -> m.Inventory:
    return m.Inventory(
        epoch=line.count("epoch", 1),
        seq=line.count("seq", 1),
        capacity=capacity(line),
        load=load(line),
        drivers=("process",),
    )


def _frees(_: NodeId, line: Line) -> m.InventoryChanged:
    return m.InventoryChanged(
        epoch=line.count("epoch", 1), seq=line.count("seq", 2), load=load(line)
    )


def _offer(_: NodeId, line: Line) -> m.Offer:
    request = RequestId(line.words[2])
    destroys = line.options.get("destroys", "")
    losses = [word.split(":") for word in destroys.split(",") if word]
    return m.Offer(
        request=request,
        leases=leases(line, 4),
        valid_for_s=6.0,
        displaces=line.count("displaces", len(losses)),
        destroys=tuple(m.Loss(int(rank), int(work)) for rank, work in losses),
    )


def _refuse(_: NodeId, line: Line) -> m.Refusal:
    """Refuse a request, leases of a commit, or an attempt (on a lease)."""
    what = line.words[2]
    reason = line.options.get("reason", "no-room")
    if ":" in what:
        return m.Refusal(attempt=attempt(what), leases=leases(line, 4), reason=reason)
    return m.Refusal(request=RequestId(what), leases=leases(line, 4), reason=reason)


def _committed(_: NodeId, line: Line) -> m.Committed:
    return m.Committed(request=RequestId(line.words[2]), leases=leases(line, 4))


def _renewed(_: NodeId, line: Line) -> m.Renewed:
    alive = [word.partition("@") for word in line.words[2:]]
    gone = line.options.get("gone", "")
    return m.Renewed(
        leases=tuple(
            m.Occupied(LeaseId(lease), attempt(run) if run else None)
            for lease, _, run in alive
        ),
        gone=tuple(LeaseId(lease) for lease in gone.split(",") if lease),
    )


def _report(_: NodeId, line: Line) -> m.Report:
    return m.Report(
        attempt=attempt(line.words[2]),
        lease=LeaseId(line.words[3]),
        outcome=outcome(line, line.words[4:]),
        next=_named(line, "next"),
        place=_place(line, line.options["after"]) if "after" in line.options else None,
        missing=line.count("missing", 0),
    )


def _place(line: Line, number: str) -> m.OutputPlace:
    return m.OutputPlace(line.count("epoch", 1), line.count("held", 0), int(number))


def _named(line: Line, option: str) -> Attempt | None:
    return attempt(line.options[option]) if option in line.options else None


def _attempts(line: Line) -> tuple[Attempt, ...]:
    return tuple(attempt(word) for word in line.words[2:])


MESSAGES: Final[dict[str, Callable[[NodeId, Line], m.AnyMessage]]] = {
    "demands": _demand,
    "commits": _commit,
    "assigns": _assign,
    "cancels": _cancel,
    "adopts": _adopt,
    "announces": _announce,
    "releases": lambda _, line: m.Release(leases=leases(line)),
    "forgoes": lambda _, line: m.Release(
        leases=(), requests=tuple(map(RequestId, line.words[2:]))
    ),
    "renews": _renew,
    "acknowledges": lambda _, line: m.Acknowledgement(attempts=_attempts(line)),
    "took": lambda _, line: m.OutputReceipt(
        epoch=1, taken=int(line.words[2]), gap="gap" in line.words
    ),
    "prints": lambda _, line: m.Output(
        attempt=attempt(line.words[2]),
        stream="stdout",
        offset=line.count("at", 0),
        data=line.words[4].encode(),
        place=_place(line, line.words[3]),
    ),
    "inquires": lambda _, __: m.Inquiry(request=RequestId("q")),
    "has": _has,
    "frees": _frees,
    "offers": _offer,
    "refuses": _refuse,
    "committed": _committed,
    "renewed": _renewed,
    "reports": _report,
    "withdraws": lambda _, line: m.Withdrawal(leases=leases(line)),
    "preempts": lambda _, line: m.Preemption(
        lease=leases(line)[0], grace_s=10, reason="a better one"
    ),
    "started": lambda _, line: m.Started(
        attempt=attempt(line.words[2]), lease=LeaseId(line.words[3])
    ),
    "progresses": lambda _, line: m.Progress(
        attempt=attempt(line.words[2]),
        seq=1,
        fraction=line.number("done", 0.0) if "done" in line.options else None,
        metrics={n: float(v) for n, v in line.options.items() if n != "done"},
    ),
    "saves": lambda _, line: m.Checkpoint(
        attempt=attempt(line.words[2]),
        seq=line.count("seq", 1),
        tree=BlobId(line.words[3]),
    ),
    "leaves": lambda _, __: m.Goodbye(),
    "wants-peers": lambda _, line: m.PeersWanted(
        request=RequestId("q"), count=int(line.words[2])
    ),
    "wants-relay": lambda _, line: m.ReservationWanted(
        request=RequestId("q"), addresses=line.words[2:]
    ),
    "revokes": lambda _, line: revoked(line.words[2], serial=line.count("serial", 0)),
}


def task_event(line: Line) -> events.Event:
    """Read what became of a process: `task ATTEMPT exits 0`, `writes`, `is at`."""
    run, verb = attempt(line.words[1]), line.words[2]
    if verb == "writes":
        text, offset = " ".join(line.words[3:]), line.count("at", 0)
        return events.TaskWrote(run, "stdout", offset, text.encode())
    if verb == "saves":
        return events.TaskSaved(run, BlobId(line.words[3]))
    if verb == "staged":
        return StagingEnded(run, line.options.get("reason", ""))
    if verb == "input":
        lost = line.words[3] == "lost"
        return events.InputLost(run, "x") if lost else events.InputTaken(run)
    if verb == "is-at":
        return events.TaskProgressed(run, float(line.words[3]))
    return events.TaskEnded(run, outcome(line, line.words[2:]))


def checkpoint_event(line: Line) -> events.Event:
    """Read what became of a fetch: `checkpoint TASK kept TREE` or `... missed`."""
    task = TaskId(line.words[1])
    if line.words[2] == "missed":
        return CheckpointMissed(task)
    return CheckpointKept(task, BlobId(line.words[3]))


def outputs_event(line: Line) -> events.Event:
    """Read what became of outputs: `outputs ATTEMPT fetched digest=x`, or `lost`."""
    run, verb = attempt(line.words[1]), line.words[2]
    if verb == "lost":
        return OutputsLost(run, line.options.get("reason", "gone"))
    return OutputsFetched(run, line.options.get("digest", ""))


FETCHES: Final = {"checkpoint": checkpoint_event, "outputs": outputs_event}


def job(line: Line) -> Job:
    """Read a job: `client submits j tasks=2 cpu=1`, or `groups=a:2,b:1:a`.

    A group is written as its name, the number of its tasks, and what it needs.
    """
    id_ = JobId(line.words[2])
    text = line.options.get("groups", f"g:{line.count('tasks', 1)}")
    gang_min = line.count("gang", 0)
    retry = line.options.get("retry", "worker-lost").split(",")
    return Job(
        id=id_,
        owner=OwnerId(""),  # The scheduler takes it from the submitter's grant.
        groups=tuple(
            _group(id_, words.split(":"), gang_min, line) for words in text.split(",")
        ),
        priority=line.count("priority", 0),
        preempt=line.has("preempt"),
        at_most_once=line.has("once"),
        speculate=line.has("speculate"),
        retry=Retry(max=line.count("tries", 3), on=tuple(retry)),
    )


def _group(job_id: JobId, words: list[str], gang_min: int, line: Line) -> Group:
    name, size = words[0], int(words[1])
    group_id = GroupId(f"{job_id}.{name}")
    return Group(
        id=group_id,
        tasks=tuple(
            Task(
                id=TaskId(f"{group_id}.{index}"),
                job=job_id,
                group=group_id,
                index=index,
                size=size,
                profiles=profiles(line),
                grace_s=line.number("grace", 10),
                alone=line.has("alone"),
            )
            for index in range(size)
        ),
        gang_min=gang_min,
        needs=tuple(GroupId(f"{job_id}.{need}") for need in words[2:]),
        verify=_verify(line),
        objective=_objective(line),
    )


def _verify(line: Line) -> Verify | None:
    copies = line.count("verify", 0)
    return Verify(copies=copies, most=line.count("most", 8)) if copies else None


def _objective(line: Line) -> Objective | None:
    """Read what tasks are compared by: `objective=loss:10:2`, first rung and eta."""
    if "objective" not in line.options:
        return None
    metric, rung, eta = line.options["objective"].split(":")
    return Objective(metric, first_rung=int(rung), eta=int(eta))


def profiles(line: Line) -> tuple[Profile, ...]:
    """Read the alternatives of a task: the favourite, and `or-cpu` if there is one."""
    first = profile(line)
    if "or-cpu" not in line.options:
        return (first,)
    return (first, Profile(cpu_milli=round(line.number("or-cpu", 0) * 1000)))


def lending_event(line: Line) -> LendingEvent:
    """Return what is seen of the owner, or what other programs take."""
    if line.words[0] == "machine":
        gpus = [item.split(":") for item in listed(line, "gpus")]
        return MachineMeasured(
            memory_bytes=line.count("memory", 0) * GIB,
            memory_by_tasks_bytes=line.count("tasks", 0) * GIB,
            disk_bytes=line.count("disk", 0) * GIB,
            devices=tuple(
                DeviceMeasured(id_, round(float(gib) * GIB)) for id_, gib in gpus
            ),
            stalled_milli=line.count("stalled", 0),
        )
    return OwnerObserved(
        input_idle_s=float(line.options["idle"]) if "idle" in line.options else None,
        input_at="tty1",
        cpu_milli=line.count("cpu", 0),
        on_battery=line.has("unplugged"),
        week_minute=line.count("hour", 0) * 60,
    )


def drain_event(how: list[str]) -> events.DrainRequested | events.DrainEnded:
    """Read `drain 10`, `drain lasts` or `drain ends`."""
    match how:
        case ["ends"]:
            return events.DrainEnded()
        case ["lasts"]:
            return events.DrainRequested(None, lasts=True)
        case [grace]:
            return events.DrainRequested(float(grace))
        case _:
            raise AssertionError(how)
