"""What earlier runs took: memory that later jobs of the same need, though none says so.

Theory of operation. A worker tells in its report how much memory an attempt took, and
how much of a GPU. The scheduler tells that by `NeedSeen`, if the attempt did its work.
This machine keeps the most that was seen for each *kind of work*: a hash of all that
says what runs (program, arguments, params, files by their hashes), of the first task of
a group. So tasks of an array share a figure, and another batch size is other work.

A job that says nothing of memory is given the figure (`fill`): there must be so much
room where it runs. It is no limit, as nobody promised it. Figures of machines of other
owners are not believed: one that lies could keep a job from running anywhere.

Durable are `NeedsKept` entries, at most one every `WRITE_S`. `KINDS_MAX` kinds are
kept; those that were not seen for longest are forgotten.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import Deadlines
from shoal.core.durability.journal import Entry, NeedRow, NeedsKept
from shoal.core.events import DeadlineReached, Effect, Event, Record, Tell
from shoal.core.housekeeping.events import NeedSeen
from shoal.core.machine import Mount
from shoal.model.job import each_changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.core.membership.roster import Roster
    from shoal.model.ids import NodeId, OwnerId
    from shoal.model.job import Group, Job, Task
    from shoal.model.resources import GpuNeed
    from shoal.protocol.messages import Outcome

KINDS_MAX: Final = 2_000
ROWS_PER_ENTRY: Final = 500
WRITE_S: Final = 5.0

COUNTED_MIN_BYTES: Final = 256 << 20
"""Less than this is nothing that a machine must be chosen for."""


@final
class PastNeeds:
    """Remembers what work took, and asks for that much the next time."""

    mount = Mount(takes={}, hears=(NeedSeen,))

    def __init__(self, node: NodeId, roster: Roster, journal: Iterable[Entry]) -> None:
        """Begin with what earlier lives have seen."""
        self._node = node
        self._roster = roster
        self._rows: dict[str, NeedRow] = {}  # at most KINDS_MAX, the latest last
        self._new: dict[str, NeedRow] = {}  # not journalled yet
        self._due: Deadlines[str] = Deadlines()
        for row in _rows_of(journal):
            _keep(self._rows, row)

    @property
    def rows(self) -> list[NeedRow]:
        """What was seen, the latest last."""
        return list(self._rows.values())

    def kept(self) -> Iterator[Entry]:
        """Yield entries that stand for all entries so far."""
        yield from _entries(self._rows)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case NeedSeen():
                self._on_seen(event, now)
            case DeadlineReached():
                if self._due.pop_due(now):
                    entries, self._new = list(_entries(self._new)), {}
                    return [Record(entry, durable=False) for entry in entries]
            case _:
                pass
        return []

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._due.next()

    def fill(self, job: Job) -> Job:
        """Return a job that asks for what it took before, where it says nothing."""
        if not self._rows:
            return job
        groups = tuple(self._filled(group, job.owner) for group in job.groups)
        return msgspec.structs.replace(job, groups=groups)

    def _on_seen(self, event: NeedSeen, now: float) -> None:
        of_worker = self._roster.owner_of(event.worker, now)
        if event.worker != self._node and of_worker != event.owner:
            return
        kind = event.kind
        seen = NeedRow(kind, event.memory_bytes, event.gpu_memory_bytes)
        known = _keep(self._rows, seen)
        if self._rows[kind] == known:
            return
        self._new[kind] = self._rows[kind]
        self._due.set_earlier("write", now + WRITE_S)

    def _filled(self, group: Group, owner: OwnerId) -> Group:
        first = group.tasks[0]
        if len(first.profiles) != 1:
            return group  # Each alternative may take another amount.
        row = self._rows.get(kind_of(group, owner)) if self._rows else None
        if row is None:
            return group
        tasks = each_changed(group.tasks, lambda task: _asking(task, row))
        return msgspec.structs.replace(group, tasks=tasks)


def need_seen(
    group: Group, owner: OwnerId, worker: NodeId, outcome: Outcome
) -> list[Effect]:
    """Tell what an attempt that did its work took, if it is worth to be kept."""
    memory, gpu_memory = outcome.memory_bytes, outcome.gpu_memory_bytes
    if memory < COUNTED_MIN_BYTES and not gpu_memory:
        return []
    seen = NeedSeen(
        kind=kind_of(group, owner),
        owner=owner,
        worker=worker,
        memory_bytes=memory,
        gpu_memory_bytes=gpu_memory,
    )
    return [Tell(seen)]


def kind_of(group: Group, owner: OwnerId) -> str:
    """Return what tells this work from other work."""
    first = group.tasks[0]
    gpu = first.profiles[0].gpu
    what = (
        owner,
        msgspec.structs.replace(first.work, secrets=()),
        sorted(first.params.items()),
        first.size if group.gang_min else 1,
        0 if gpu is None else gpu.count,
    )
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:32]


def without_past(job: Job) -> Job:
    """Return a job as its spec has it, without figures of earlier runs."""
    groups = tuple(
        msgspec.structs.replace(group, tasks=each_changed(group.tasks, _plain))
        for group in job.groups
    )
    return msgspec.structs.replace(job, groups=groups)


def _asking(task: Task, row: NeedRow) -> Task:
    """Return a task that asks for what was seen, where nothing else says."""
    profile, gpu = task.profiles[0], task.profiles[0].gpu
    replace = msgspec.structs.replace
    if profile.memory_bytes == 0 and row.memory_bytes >= COUNTED_MIN_BYTES:
        profile = replace(profile, memory_bytes=row.memory_bytes)
        task = replace(task, memory_from="runs", profiles=(profile,))
    if gpu is not None and _says_nothing(gpu) and row.gpu_memory_bytes:
        gpu = replace(gpu, memory_min_bytes=row.gpu_memory_bytes)
        profile = replace(profile, gpu=gpu)
        task = replace(task, gpu_memory_from="runs", profiles=(profile,))
    return task


def _says_nothing(gpu: GpuNeed) -> bool:
    return gpu.memory_min_bytes == 0 and gpu.memory_max_bytes is None


def _plain(task: Task) -> Task:
    if "runs" not in (task.memory_from, task.gpu_memory_from):
        return task
    replace, profile = msgspec.structs.replace, task.profiles[0]
    if task.memory_from == "runs":
        profile = replace(profile, memory_bytes=0)
        task = replace(task, memory_from="spec")
    if task.gpu_memory_from == "runs" and profile.gpu is not None:
        profile = replace(profile, gpu=replace(profile.gpu, memory_min_bytes=0))
        task = replace(task, gpu_memory_from="spec")
    return replace(task, profiles=(profile,))


def _keep(rows: dict[str, NeedRow], seen: NeedRow) -> NeedRow | None:
    """Keep the most that was seen of a kind; return what was known before."""
    known = rows.pop(seen.kind, None)
    if known is not None:
        seen = NeedRow(
            seen.kind,
            max(seen.memory_bytes, known.memory_bytes),
            max(seen.gpu_memory_bytes, known.gpu_memory_bytes),
        )
    rows[seen.kind] = seen
    if len(rows) > KINDS_MAX:
        del rows[next(iter(rows))]
    return known


def _rows_of(journal: Iterable[Entry]) -> Iterator[NeedRow]:
    for entry in journal:
        if isinstance(entry, NeedsKept):
            yield from entry.rows


def needs_kept(journal: Iterable[Entry]) -> Iterator[Entry]:
    """Yield fewer entries that say the same."""
    rows: dict[str, NeedRow] = {}
    for row in _rows_of(journal):
        _keep(rows, row)
    yield from _entries(rows)


def _entries(rows: dict[str, NeedRow]) -> Iterator[Entry]:
    each = list(rows.values())
    for first in range(0, len(each), ROWS_PER_ENTRY):
        yield NeedsKept(tuple(each[first : first + ROWS_PER_ENTRY]))
