"""The monitor's data: the latest snapshot from a node, and metrics over time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from shoal.api.node_names import WORKER_LABEL, nodes_called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.api import shoal_pb2 as pb

JOBS_MAX: Final = 200
TASKS_MAX: Final = 200
POINTS_MAX: Final = 600


class NodeSource(Protocol):
    """The client of the node that the monitor asks. Calls block."""

    def nodes(self) -> pb.NodesReply:
        """Return all known nodes."""
        ...

    def jobs(self, *, jobs_max: int = 0, active_max: int = 0) -> pb.ListReply:
        """Return jobs, newest last, and up to `active_max` older active ones."""
        ...

    def get(self, job: str, tasks_max: int = 0) -> pb.Job:
        """Return a job and its tasks."""
        ...

    def curves(self, job: str, since_s: float = 0.0) -> pb.CurvesReply:
        """Return the metrics that tasks reported over time."""
        ...

    def logs(self, request: pb.LogsRequest) -> Iterator[pb.LogPiece]:
        """Return the output of tasks."""
        ...

    def cancel(self, job: str, reason: str = "") -> pb.CancelReply:
        """Cancel a job."""
        ...

    def explain(self, job: str, task: str = "") -> pb.ExplainReply:
        """Explain the placement of tasks."""
        ...

    def requests(self) -> pb.RequestsReply:
        """Return the pending join requests."""
        ...

    def accept(
        self, node: str, *, code: str = "", decline: bool = False
    ) -> pb.AcceptReply:
        """Approve or decline a join request, or agree to join a shoal."""
        ...


class Snapshot(NamedTuple):
    """All nodes and the latest jobs, at one moment."""

    nodes: tuple[pb.Node, ...]
    jobs: tuple[pb.Job, ...]  # those that go on, then the others; the latest first

    @property
    def active(self) -> int:
        """How many jobs have not ended."""
        return sum(map(_goes_on, self.jobs))


def _goes_on(job: pb.Job) -> bool:
    return job.counts.running + job.counts.waiting + job.counts.blocked > 0


def look(source: NodeSource, worker: str = "") -> Snapshot:
    """Ask for a snapshot; `worker` limits it to one node and its jobs."""
    nodes = list(source.nodes().nodes)
    jobs = list(source.jobs(jobs_max=JOBS_MAX, active_max=JOBS_MAX).jobs)
    if worker:
        names = {n.name.id: n.name.petname for n in nodes}
        names |= {n.id: n.petname for j in jobs for n in j.nodes}
        labels = {n.name.id: n.labels.get(WORKER_LABEL, "") for n in nodes}
        meant = nodes_called(worker, names) or nodes_called(worker, labels)
        nodes = [n for n in nodes if n.name.id in meant]
        jobs = [j for j in jobs if any(n.id in meant for n in j.nodes)]
    latest = jobs[::-1]
    latest.sort(key=_goes_on, reverse=True)  # It keeps the order of equal ones.
    return Snapshot(tuple(nodes), tuple(latest))


@final
class MonitorCurves:
    """The metrics reported by a job's tasks, in order of arrival."""

    def __init__(self) -> None:
        self.latest_s = 0.0  # What is later is not here yet.
        self.names: dict[str, str] = {}  # of tasks, by their ids
        self._points: dict[tuple[str, str], deque[float]] = {}

    def note(self, reply: pb.CurvesReply) -> None:
        """Add new points; points that two concurrent polls return are added once."""
        known_s = self.latest_s
        for curve in reply.curves:
            where = self.names.get(curve.task) or curve.task.partition(".")[2]
            key = (curve.name, where)
            points = self._points.setdefault(key, deque(maxlen=POINTS_MAX))
            told = zip(curve.at_s, curve.values, strict=True)
            points.extend(value for at_s, value in told if at_s > known_s)
            self.latest_s = max(self.latest_s, *curve.at_s)

    def __iter__(self) -> Iterator[tuple[str, list[float]]]:
        many = len({where for _, where in self._points}) > 1
        for (name, where), points in sorted(self._points.items()):
            yield f"{name} {where}" if many else name, list(points)
