"""Jobs that leave traces, and what must be true of the traces when all is over.

Each task writes down that it began and that it ended, into one file outside of its
sandbox, and holds a lock for its device. So a test can count how often a task has
really run, and sees if two processes had one device at the same time.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, tolerant

from shoal.api import shoal_pb2 as pb
from shoal.core.durability.journal import (
    Assigned,
    Entry,
    Finished,
    Incarnated,
    RunKept,
    Submitted,
    TaskKept,
    decode,
)
from shoal.model.ids import Attempt
from shoal.store.journal import Journal

SCRIPT = """
exec 8>>"$DIARY/lock.$SHOAL_WORKER.$CUDA_VISIBLE_DEVICES"
flock -n 8 || echo "shared $SHOAL_TASK_ID $CUDA_VISIBLE_DEVICES" >>"$DIARY/diary"
echo "begin $SHOAL_TASK_ID $SHOAL_ATTEMPT $$" >>"$DIARY/diary"
sleep "$1"
echo "end $SHOAL_TASK_ID $SHOAL_ATTEMPT $$" >>"$DIARY/diary"
[ "$2" != flaky ] || mkdir "$DIARY/$SHOAL_TASK_ID" 2>/dev/null || exit 0
[ "$2" != flaky ] || exit 9
"""

ENDS: dict[int | None, str] = {
    pb.STATE_DONE: "done",
    pb.STATE_FAILED: "failed",
    pb.STATE_CANCELLED: "cancelled",
    pb.STATE_UNKNOWN: "unknown",
}
END_S = 120.0
IDLE_S = 60.0
"""A lease that nobody uses any more ends after 15 seconds at the latest."""


class Ordered(NamedTuple):
    """A job that was handed in, and the ends that it may have."""

    id: str
    ends: frozenset[str] = frozenset({"done"})
    once: bool = False


class Work:
    """The jobs of one test."""

    def __init__(self, shoal: LiveShoal, boss: LiveNode | None = None) -> None:
        """Hand jobs to `boss`, which is the first node unless said."""
        self.shoal = shoal
        self.boss = boss or shoal.boss
        self.orders: dict[str, Ordered] = {}
        self.diary = shoal.folder / "diary"
        self.diary.mkdir(exist_ok=True)
        self.diary.chmod(0o777)
        self._specs: dict[str, str] = {}
        self._unsure: list[str] = []  # handed in, and not acknowledged
        self._to_cancel: list[str] = []

    # Handing in.

    def mixed(self, name: str, *, long_s: float = 0.4, endless: int = 2) -> None:
        """Hand in some of everything: many, a gang, a flaky one, one that runs once.

        There are also short ones, which are sent ahead to wait for each other.

        So many tasks never end by themselves; `cancel_some` cancels them.
        """
        ends = frozenset({"cancelled"})
        self.order(f"{name}-gone", {"array": endless}, seconds=600, ends=ends)
        self._to_cancel.append(f"{name}-gone")
        self.order(f"{name}-many", {"array": 6}, seconds=long_s)
        self.order(f"{name}-short", {"array": 24}, seconds=0)
        self.order(f"{name}-gang", {"nodes": 2}, seconds=long_s)
        retry = {"retry": {"max": 3, "on": ["failed", "worker-lost"]}}
        self.order(f"{name}-flaky", retry, seconds=0.1, how="flaky")
        ends = frozenset({"done", "unknown"})
        self.order(f"{name}-once", {"at_most_once": True}, ends=ends, once=True)

    def order(
        self,
        id_: str,
        more: dict[str, Any] | None = None,
        *,
        seconds: float = 0.4,
        how: str = "plain",
        script: str = SCRIPT,
        ends: frozenset[str] = frozenset({"done"}),
        once: bool = False,
    ) -> None:
        """Hand in a job of such tasks; if the node dies meanwhile, say so later."""
        spec: dict[str, Any] = {
            "command": ["sh", "-c", script, "task", str(seconds), how],
            "env": {"DIARY": str(self.diary)},
            "resources": {"gpu": 1, "cpu": 0.1, "ram": "64MB"},
            **(more or {}),
        }
        self._specs[id_] = json.dumps(spec)
        self.orders[id_] = Ordered(id_, ends, once)
        self._unsure.append(id_)
        self.hand_in()

    def hand_in(self) -> None:
        """Hand in what was not acknowledged, under the same id as before."""
        self._unsure = [id_ for id_ in self._unsure if not self._submitted(id_)]

    def cancel_some(self) -> None:
        """Cancel what is meant to be cancelled and is not yet."""
        self._to_cancel = [
            id_
            for id_ in self._to_cancel
            if not (id_ not in self._unsure and self._cancelled(id_))
        ]

    def cancel(self, id_: str) -> None:
        """Cancel a job of a node that is up."""
        self._to_cancel.append(id_)
        self.cancel_some()

    def _submitted(self, id_: str) -> bool:
        request = pb.SubmitRequest(job_id=id_, json=self._specs[id_])
        boss = self.boss
        return boss.alive and tolerant(boss, lambda: submit(boss, request))

    def _cancelled(self, id_: str) -> bool:
        boss = self.boss
        return boss.alive and tolerant(boss, lambda: cancel(boss, id_))

    # How it goes.

    def states(self) -> dict[str, str]:
        """Return the end of each job, or that it has none yet."""
        with self.boss.client() as client:
            jobs = {job.id: job.state for job in client.jobs().jobs}
        return {id_: ENDS.get(jobs.get(id_), "open") for id_ in self.orders}

    def lines(self) -> list[list[str]]:
        """Return what the tasks wrote down."""
        try:
            text = (self.diary / "diary").read_text(encoding="ascii")
        except FileNotFoundError:
            return []
        return [line.split() for line in text.splitlines()]

    def begun(self, job: str = "") -> Counter[str]:
        """Return how often each task of these jobs has begun."""
        lines = (line for line in self.lines() if line[0] == "begin")
        ours = (line[1] for line in lines if line[1].split(".")[0] in self.orders)
        return Counter(task for task in ours if task.startswith(job))

    def pids(self, job: str) -> dict[str, int]:
        """Return the process of each task of a job, the latest that has begun."""
        begun = [line for line in self.lines() if line[0] == "begin"]
        return {line[1]: int(line[3]) for line in begun if line[1].startswith(job)}

    def finish(self, within_s: float = END_S) -> None:
        """Do what could not be done, and wait until every job has ended."""
        self.hand_in()
        self.cancel_some()
        assert not self._unsure
        assert not self._to_cancel
        eventually(self._all_ended, within_s, self._what_lasts)

    def _all_ended(self) -> bool:
        return "open" not in self.states().values()

    def _what_lasts(self) -> str:
        with self.boss.client() as client:
            jobs = [
                client.get(id_, 10) for id_, s in self.states().items() if s == "open"
            ]
        return "\n".join(map(str, jobs))


def submit(boss: LiveNode, request: pb.SubmitRequest) -> pb.SubmitReply:
    """Hand a job in; it is on disk when this returns."""
    with boss.client() as client:
        return client.submit(request)


def cancel(boss: LiveNode, job: str) -> pb.CancelReply:
    """Cancel a job; that is on disk when this returns."""
    with boss.client() as client:
        return client.cancel(job, "no longer wanted")


# What must be true.


def violations(work: Work, *, rerun: Sequence[str] = ()) -> list[str]:
    """Return what is wrong, when every job has ended and the nodes are up.

    `rerun` says how the ids of jobs begin whose tasks may begin again, because the
    worker that ran them was hurt.
    """
    entries = read_journal(work.boss)
    return [
        *_wrong_ends(work),
        *_wrong_runs(work, entries, rerun=rerun),
        *_wrong_entries(entries),
        *_lost_jobs(work, entries),
        *_wrong_books(work.shoal, work.boss),
    ]


def _wrong_ends(work: Work) -> list[str]:
    return [
        f"{id_} ended {end}"
        for id_, end in work.states().items()
        if end not in work.orders[id_].ends
    ]


def _wrong_runs(
    work: Work, entries: Sequence[Entry], *, rerun: Sequence[str]
) -> list[str]:
    """Count real processes: none for nothing, and none twice without a reason."""
    found = [" ".join(line) for line in work.lines() if line[0] == "shared"]
    begun = work.begun()
    for task, times in begun.items():
        order = work.orders[task.split(".")[0]]
        flaky = "flaky" in order.id
        if order.once and times > 1:
            found.append(f"{task} must run once and began {times} times")
        elif times > 1 + flaky and not task.startswith(tuple(rerun)):
            found.append(f"{task} began {times} times, and no worker was hurt")
            found += [f"    {e}" for e in entries if task in str(e)]
    ended = {line[1] for line in work.lines() if line[0] == "end"}
    for id_, end in work.states().items():
        tasks = [task for task in begun if task.startswith(f"{id_}.")]
        if end == "done" and not ended.issuperset(tasks or [f"{id_}.?"]):
            found.append(f"{id_} is done, and not all of {tasks} came to their end")
    return found


def _wrong_entries(entries: Sequence[Entry]) -> list[str]:
    """Check that every task ended once, by an attempt that was on disk before."""
    found: list[str] = []
    generation = 0
    assigned: set[Attempt] = set()
    ended: Counter[str] = Counter()
    for entry in entries:
        match entry:
            case Incarnated():
                if entry.generation <= generation:
                    found.append(f"generation {entry.generation} was used before")
                generation = entry.generation
            case Assigned():
                for place in entry.places:
                    if place.attempt in assigned:
                        found.append(f"{place.attempt} was assigned twice")
                    if place.attempt.generation != generation:
                        found.append(
                            f"{place.attempt} is not of generation {generation}"
                        )
                    assigned.add(place.attempt)
            case RunKept():
                assigned.add(entry.place.attempt)
            case Finished():
                ended[entry.task] += 1
                if entry.attempt is not None and entry.attempt not in assigned:
                    found.append(
                        f"{entry.task} ended by {entry.attempt}, never assigned"
                    )
            case TaskKept():
                ended[entry.task] += entry.end is not None
            case _:
                pass
    return found + [f"{task} ended {n} times" for task, n in ended.items() if n > 1]


def _lost_jobs(work: Work, entries: Sequence[Entry]) -> list[str]:
    kept = Counter[str](e.job.id for e in entries if isinstance(e, Submitted))
    wrong = {id_: kept[id_] for id_ in work.orders if kept[id_] != 1}
    return [f"{id_} was acknowledged and is kept {n} times" for id_, n in wrong.items()]


def _wrong_books(shoal: LiveShoal, boss: LiveNode) -> list[str]:
    """Wait until nothing is leased; return what still is, and what still runs."""
    try:
        eventually(lambda: not _in_use(shoal, boss), IDLE_S)
    except AssertionError:
        return _in_use(shoal, boss)
    return []


def _in_use(shoal: LiveShoal, boss: LiveNode) -> list[str]:
    found: list[str] = []
    views = boss.views()
    for worker in shoal.workers:
        if not worker.alive:
            continue
        name = worker.home.path.name
        own = worker.view()
        if _leased(own) or own.active:
            found.append(f"{name} says: {own.active} tasks, free {own.free}")
        # A scheduler need not know everybody, and hears later of memory and disk that
        # other programs take. Whatever is leased here has a share of the CPUs.
        seen = views.get(worker.id)
        if seen is not None and (seen.free.cpu_milli, seen.free.gpu_milli) != (
            seen.total.cpu_milli,
            seen.total.gpu_milli,
        ):
            found.append(f"the scheduler says of {name}: free {seen.free}")
        if left := worker.task_processes():
            found.append(f"{name} has processes of tasks: {left}")
    return found


def _leased(own: pb.Node) -> bool:
    """Whether anything is neither free nor taken by programs that are not tasks."""
    parts = ("cpu_milli", "memory_bytes", "disk_bytes", "gpu_milli")
    return any(
        getattr(own.free, part) + getattr(own.withheld, part)
        != getattr(own.total, part)
        for part in parts
    )


def read_journal(node: LiveNode) -> list[Entry]:
    """Return what a node has on disk, by a copy: the node may be running, but idle."""
    with tempfile.TemporaryDirectory() as folder:
        for path in node.home.path.glob("journal.db*"):
            shutil.copy(path, folder)
        journal = Journal.open(Path(folder) / "journal.db")
        entries = [decode(row.payload) for row in journal.rows()]
        journal.close()
    return entries
