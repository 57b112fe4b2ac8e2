"""What the monitor knows: the latest answer of a node, and figures as they went by."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.api import shoal_pb2 as pb

JOBS_MAX: Final = 200
TASKS_MAX: Final = 200
POINTS_MAX: Final = 600


class Source(Protocol):
    """Whom the monitor asks: a client of a node. Calls block."""

    def nodes(self) -> pb.NodesReply:
        """Return all known nodes."""
        ...

    def jobs(self, *, active_only: bool = False, jobs_max: int = 0) -> pb.ListReply:
        """Return jobs, the latest last."""
        ...

    def get(self, job: str, tasks_max: int = 0) -> pb.Job:
        """Return a job and its tasks."""
        ...

    def logs(self, request: pb.LogsRequest) -> Iterator[pb.LogPiece]:
        """Return what tasks wrote."""
        ...

    def cancel(self, job: str, reason: str = "") -> pb.CancelReply:
        """End a job."""
        ...

    def explain(self, job: str, task: str = "") -> pb.ExplainReply:
        """Say why tasks are where they are."""
        ...


class Picture(NamedTuple):
    """All nodes and the latest jobs, at one moment."""

    nodes: tuple[pb.Node, ...]
    jobs: tuple[pb.Job, ...]  # the latest first

    @property
    def active(self) -> int:
        """How many jobs have not ended."""
        return sum(
            job.counts.running + job.counts.waiting + job.counts.blocked > 0
            for job in self.jobs
        )


def look(source: Source, worker: str = "") -> Picture:
    """Ask for a picture; `worker` leaves only one node and what runs there."""
    nodes = [n for n in source.nodes().nodes if not worker or _is(n.name, worker)]
    jobs = source.jobs(jobs_max=JOBS_MAX).jobs
    shown = [j for j in jobs if not worker or any(_is(n, worker) for n in j.nodes)]
    return Picture(tuple(nodes), tuple(reversed(shown)))


def _is(name: pb.NodeName, wanted: str) -> bool:
    return wanted == name.petname or name.id.startswith(wanted)


@final
class Curves:
    """The figures that tasks of a job told, in the order in which they came."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], deque[float]] = {}

    def note(self, job: pb.Job) -> None:
        """Add what is new; a figure that did not change is no new point."""
        many = len(job.tasks) > 1
        for task in job.tasks:
            where = task.id.partition(".")[2] if many else ""
            for name, value in sorted(task.metrics.items()):
                points = self._points.setdefault(
                    (name, where), deque(maxlen=POINTS_MAX)
                )
                if not points or points[-1] != value:
                    points.append(value)

    def __iter__(self) -> Iterator[tuple[str, list[float]]]:
        for (name, where), points in sorted(self._points.items()):
            yield f"{name} {where}".strip(), list(points)
