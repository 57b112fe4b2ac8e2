"""The rows of `squeue`: batch jobs, and tasks of arrays, in the words of Slurm."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.api import shoal_pb2 as pb
from shoal.api.documents import state_of
from shoal.cli.slurm.submitting import NEVER_MET
from shoal.errors import UsageError
from shoal.model.spec.points import parse_array
from shoal.model.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from shoal.api.client.client import Client
    from shoal.cli.slurm.ledger import BatchJob, BatchLedger
    from shoal.cli.slurm.submitting import Clerk

STATES: Final = {
    "blocked": ("PD", "PENDING"),
    "waiting": ("PD", "PENDING"),
    "held": ("PD", "PENDING"),
    "running": ("R", "RUNNING"),
    "done": ("CD", "COMPLETED"),
    "failed": ("F", "FAILED"),
    "timed-out": ("TO", "TIMEOUT"),
    "cancelled": ("CA", "CANCELLED"),
    "unknown": ("NF", "NODE_FAIL"),
}
ACTIVE: Final = ("PD", "R")
NAMES: Final = {word: short for short, word in STATES.values()} | {
    short: short for short, _ in STATES.values()
}
NEVER_HERE: Final = frozenset(
    {
        *("BF", "BOOT_FAIL", "CF", "CONFIGURING", "CG", "COMPLETING", "DL", "DEADLINE"),
        *("OOM", "OUT_OF_MEMORY", "PR", "PREEMPTED", "RD", "RESV_DEL_HOLD", "RF"),
        *("RQ", "REQUEUED", "RS", "RESIZING", "RV", "REVOKED", "SI", "SIGNALING"),
        *("SE", "SPECIAL_EXIT", "SO", "STAGE_OUT", "ST", "STOPPED", "S", "SUSPENDED"),
        *("REQUEUE_FED", "REQUEUE_HOLD"),
    }
)
"""States of Slurm in which no job is here; asking for them finds none."""


class QueueRow(NamedTuple):
    """One line: a job, a task of an array, or those of an array that wait."""

    batch: BatchJob
    place: int | None  # of one task of an array
    at: str  # its index, or those of all, as in 12_3
    state: str
    reason: str
    began_s: float
    ended_s: float
    nodes: tuple[str, ...]
    exit_code: int | None

    @property
    def id(self) -> str:
        """The id as Slurm writes it: 12, 12_3 or 12_[4-9]."""
        return f"{self.batch.number}_{self.at}" if self.at else self.number

    @property
    def number(self) -> str:
        """The number of this task."""
        return str(self.batch.number + (self.place or 0))

    @property
    def short(self) -> str:
        """The state in one or two letters."""
        return STATES[self.state][0]


def read_states(text: str) -> frozenset[str]:
    """Return the short names of states, or raise; `all` means all."""
    if text.lower() == "all":
        return frozenset(NAMES.values())
    found: set[str] = set()
    for word in filter(None, text.upper().split(",")):
        if word in NAMES:
            found.add(NAMES[word])
        elif word not in NEVER_HERE:
            raise UsageError(
                f"'{word}' is no state of a job",
                because=f"known: {', '.join(sorted(NAMES))}",
                hint="squeue -t R,PD, or -t all",
            )
    return frozenset(found)


def rows_of(
    client: Client,
    ledger: BatchLedger,
    clerk: Clerk,
    *,
    states: frozenset[str],
    each: bool,
) -> Iterator[QueueRow]:
    """Yield what is known of batch jobs in these states, in the order of numbers."""
    active = states <= {*ACTIVE}
    jobs = {job.id: job for job in client.jobs(active_only=active).jobs}
    found: list[tuple[BatchJob, pb.Job | None]] = []
    found += [(batch, jobs[id_]) for id_, batch in ledger.of(jobs).items()]
    found += [(batch, None) for batch in ledger.held() if batch.job not in jobs]
    for batch, job in sorted(found, key=lambda pair: pair[0].number):
        rows = [_held(batch, clerk)] if job is None else _of(client, batch, job, each)
        yield from (row for row in rows if row.short in states)


def _held(batch: BatchJob, clerk: Clerk) -> QueueRow:
    is_never = clerk.outlook_of(batch) == "never"
    why = NEVER_MET if is_never else "Dependency"
    index = f"[{batch.indexes}]" if batch.is_array else ""
    return QueueRow(batch, None, index, "held", why, 0.0, 0.0, (), None)


def _of(client: Client, batch: BatchJob, job: pb.Job, each: bool) -> list[QueueRow]:
    if not batch.is_array:
        return [_row(batch, None, "", job)]
    tasks = client.get(job.id, tasks_max=batch.count).tasks
    indexes = parse_array(batch.indexes)
    rows = [
        _row(batch, place, str(indexes[place]), task)
        for place, task in enumerate(tasks)
    ]
    waiting = [row for row in rows if row.short == "PD"]
    if each or len(waiting) < 2:
        return rows
    # Slurm writes those that wait as one, before the others.
    which = _runs([int(row.at) for row in waiting])
    together = waiting[0]._replace(at=f"[{which}]", place=None)
    return [together, *(row for row in rows if row.short != "PD")]


def _row(
    batch: BatchJob, place: int | None, index: str, seen: pb.Job | pb.Task
) -> QueueRow:
    state = state_of(seen.state)
    if state == "failed" and "time limit" in seen.reason:
        state = "timed-out"
    return QueueRow(
        batch=batch,
        place=place,
        at=index,
        state=state,
        reason="Resources" if state == "waiting" else "None",
        began_s=seen.began_s,
        ended_s=seen.ended_s,
        nodes=tuple(node.petname for node in seen.nodes),
        exit_code=seen.exit_code if seen.HasField("exit_code") else None,
    )


def _runs(indexes: list[int]) -> str:
    """Write sorted numbers as `1-3,7`."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][-1] + 1 == index:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return ",".join("-".join(map(str, run)) for run in runs)


def clock(seconds: float) -> str:
    """Write a duration as Slurm does: 1-02:03:04, or 3:04."""
    minutes, second = divmod(int(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def _moment(wall_s: float) -> str:
    if not wall_s:
        return "N/A"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(wall_s))


def _limit_s(row: QueueRow) -> float | None:
    if not row.batch.time_limit:
        return None
    return parse_duration(row.batch.time_limit)


def _limit(row: QueueRow) -> str:
    limit_s = _limit_s(row)
    return "UNLIMITED" if limit_s is None else clock(limit_s)


def _used_s(row: QueueRow) -> float:
    if row.short == "PD" or not row.began_s:
        return 0.0
    return (row.ended_s or time.time()) - row.began_s


def _left(row: QueueRow) -> str:
    limit_s = _limit_s(row)
    return "UNLIMITED" if limit_s is None else clock(limit_s - _used_s(row))


def _where(row: QueueRow) -> str:
    if row.short == "PD":
        return f"({row.reason})"
    return ",".join(row.nodes)


FIELDS: Final[Mapping[str, tuple[str, Callable[[QueueRow], str]]]] = {
    "A": ("JOBID", lambda row: row.number),
    "C": ("CPUS", lambda row: str(row.batch.cpus)),
    "D": ("NODES", lambda row: str(row.batch.nodes)),
    "E": ("DEPENDENCY", lambda row: row.batch.dependency or "(null)"),
    "F": ("ARRAY_JOB_ID", lambda row: str(row.batch.number)),
    "K": ("ARRAY_TASK_ID", lambda row: row.at.strip("[]") or "N/A"),
    "L": ("TIME_LEFT", _left),
    "M": ("TIME", lambda row: clock(_used_s(row))),
    "N": ("NODELIST", lambda row: ",".join(row.nodes)),
    "P": ("PARTITION", lambda row: row.batch.partition),
    "Q": ("PRIORITY", lambda row: str(row.batch.spec["flags"].get("priority", 0))),
    "R": ("NODELIST(REASON)", _where),
    "S": ("START_TIME", lambda row: _moment(row.began_s)),
    "T": ("STATE", lambda row: STATES[row.state][1]),
    "V": ("SUBMIT_TIME", lambda row: _moment(row.batch.submitted_s)),
    "Z": ("WORK_DIR", lambda row: row.batch.folder),
    "a": ("ACCOUNT", lambda row: row.batch.account or "(null)"),
    "e": ("END_TIME", lambda row: _moment(row.ended_s)),
    "i": ("JOBID", lambda row: row.id),
    "j": ("NAME", lambda row: row.batch.name),
    "l": ("TIME_LIMIT", _limit),
    "m": ("MIN_MEMORY", lambda row: row.batch.memory or "0"),
    "o": ("COMMAND", lambda row: row.batch.command),
    "r": ("REASON", lambda row: row.reason),
    "t": ("ST", lambda row: row.short),
    "u": ("USER", lambda row: row.batch.user),
}
USUAL: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"


def is_of(row: QueueRow, number: int, index: int | None) -> bool:
    """Whether a row is of a job, or of a task, that a user named."""
    first = row.batch.number
    if index is not None:
        return number == first and str(index) == row.at
    if number == first:
        return True
    return row.place is not None and number == first + row.place


def named(rows: Iterable[QueueRow], jobs: str) -> list[QueueRow]:
    """Return the rows of jobs that were named: `12,13_4`."""
    wanted: list[tuple[int, int | None]] = []
    for word in filter(None, jobs.split(",")):
        number, _, index = word.partition("_")
        if not number.isdecimal() or (index and not index.isdecimal()):
            raise UsageError(f"'{word}' is no job", hint="squeue -j 12,13_4")
        wanted.append((int(number), int(index) if index else None))
    return [row for row in rows if any(is_of(row, n, index) for n, index in wanted)]
