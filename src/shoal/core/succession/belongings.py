"""The files of kept jobs: which trees belong to a log, and when a keeper fetches them.

Theory of operation. Entries of a log name trees: a submission the code and data of its
tasks, an end what its task left. A keeper *has* an entry only when all trees that it
names are on its disk as well. So whatever waits until most members have an entry waits
for its files, too, and who takes a job up has them.

    entries name trees --> FetchKept --KeptFetched--> TreeHad; the leader is told
                                     --KeptMissed--> after `FETCH_AGAIN_S`, FetchKept

They are asked of the leader first, and of all other members. Of one job `TREES_AT_ONCE`
are on their way at a time. What is under way is forgotten in a crash; which trees are
here is in the journal (`kept_jobs`), and the host holds them while the job is kept.

Checkpoints are not waited for: a task may save them faster than a link carries them. A
keeper fetches the newest of each task, and whoever takes the job up goes on from the
last one that came (`core/artifacts/provisions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.artifacts.events import FetchKept, KeptFetched, KeptMissed
from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.durability.journal import Exited, Finished, Submitted, TaskKept
from shoal.model.caches import TREE
from shoal.model.ids import BlobId, JobId
from shoal.protocol.blob_hashing import size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.core.artifacts.events import TreeKind
    from shoal.core.durability.journal import Entry
    from shoal.core.succession.kept_jobs import KeptLog
    from shoal.model.ids import NodeId
    from shoal.model.job import Job

TREES_AT_ONCE: Final = 8
FETCH_AGAIN_S: Final = 5.0


def trees_of(entry: Entry) -> dict[BlobId, TreeKind]:
    """Return the trees that an entry names, and what each of them is."""
    found: dict[BlobId, TreeKind] = {}
    if isinstance(entry, Submitted):
        found.update((tree, "code") for tree in _needed_by(entry.job))
    elif isinstance(entry, Finished | Exited | TaskKept) and entry.outcome is not None:
        names = map(BlobId, entry.outcome.outputs.values())
        found.update((tree, "outputs") for tree in names)
    return {tree: kind for tree, kind in found.items() if size_of(tree) is not None}


def _needed_by(job: Job) -> Iterator[BlobId]:
    for group in job.groups:
        yield from (each.tree for each in group.inputs)
    for task in job.models():
        for folder in (task.work.workdir, task.work.python.files):
            if folder.startswith(TREE):
                yield BlobId(folder.removeprefix(TREE))


@final
class Belongings:
    """Decides which trees of kept jobs are fetched, and when."""

    def __init__(self, node: NodeId, heap: DeadlineHeap) -> None:
        self._node = node
        self._under_way: dict[JobId, dict[BlobId, None]] = {}
        self._again: Deadlines[JobId] = Deadlines(heap)

    def want(self, job: JobId, log: KeptLog) -> list[FetchKept]:
        """Fetch what a log names and is not here, as much as may be at a time."""
        if job in self._again:
            return []  # Something could not be had: all rest.
        under_way = self._under_way.setdefault(job, {})
        members = dict.fromkeys((log.leader, *log.members))
        sources = tuple(member for member in members if member != self._node)
        found: list[FetchKept] = []
        for tree, kind in log.missing():
            if len(under_way) >= TREES_AT_ONCE:
                break
            if tree not in under_way:
                under_way[tree] = None
                found.append(FetchKept(job, tree, kind, sources))
        if not under_way:
            del self._under_way[job]
        return found

    def on_fetched(self, event: KeptFetched | KeptMissed, now: float) -> None:
        """Note that a fetch has ended; one that failed is tried again some time."""
        self._under_way.get(event.job, {}).pop(event.tree, None)
        if isinstance(event, KeptMissed):
            self._again.set(event.job, now + FETCH_AGAIN_S)

    def forget(self, job: JobId) -> None:
        """Forget a job that is not kept here any more."""
        self._under_way.pop(job, None)
        self._again.drop(job)

    def due(self, now: float) -> list[JobId]:
        """Return the jobs of which something is to be fetched again."""
        return list(self._again.pop_due(now))
