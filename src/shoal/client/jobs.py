"""A handle on a submitted job.

`Job` stores only the id. Each property and method opens a connection to the node and
asks it, so answers are current and a handle survives a restart of the node.
"""

from __future__ import annotations

import importlib
import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.api.documents import state_of
from shoal.client.notebook import table
from shoal.errors import ShoalError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shoal.api.client.client import Client as ApiClient
    from shoal.model.spec.spec import JobSpec

ENDS: Final = frozenset(
    {pb.STATE_DONE, pb.STATE_FAILED, pb.STATE_CANCELLED, pb.STATE_UNKNOWN}
)
FILES: Final = (".yaml", ".yml", ".json")
TASKS_SHOWN: Final = 50
METRICS_SHOWN: Final = 6


@final
class JobFailedError(ShoalError):
    """A job did not succeed; `exit_code` is the job's exit code, if it has one."""

    def __init__(self, what: str, *, because: str, exit_code: int | None) -> None:
        super().__init__(what, because=because, hint="its output may say more")
        self.exit_code = exit_code


@final
class Job:
    """A submitted job; reading a property asks the node."""

    def __init__(self, dial: Callable[[], ApiClient], id_: str) -> None:
        self.id = id_
        self._dial = dial

    def __repr__(self) -> str:
        """Show the id, and name and state if the node answers."""
        try:
            job = self._get()
        except ShoalError:
            return f"Job({self.id!r})"
        return f"<Job {self.id} {job.name!r} {_state_text(job)}>"

    def _repr_html_(self) -> str:
        """Show the job and its tasks as a table in a notebook, the best first."""
        from shoal.api.results import (  # noqa: PLC0415 - Rarely used.
            STEP,
            TASKS_MAX,
            best_first,
            measured,
            results,
        )

        try:
            with self._dial() as client:
                job = client.get(self.id, tasks_max=TASKS_MAX)
        except ShoalError as error:
            return table(f"Job {self.id}", [("unknown", error)])
        found = results(job)
        names = measured(found, best_first(job))
        if any(STEP in each.metrics for each in found):
            names.append(STEP)
        shown = names[:METRICS_SHOWN]
        rows: list[tuple[object, ...]] = [
            (
                each.task,
                each.state,
                *(_figure(each.metrics.get(name)) for name in shown),
                each.node,
                each.reason,
            )
            for each in found[:TASKS_SHOWN]
        ]
        if len(found) > TASKS_SHOWN:
            rows.append((f"and {len(found) - TASKS_SHOWN} more",))
        title = f"Job {self.id} {job.name}: {_state_text(job)}"
        return table(title, rows, ("task", "state", *shown, "node", "why"))

    @property
    def state(self) -> str:
        """One of blocked, waiting, running, done, failed, cancelled and unknown.

        A job with a schedule is scheduled until it is cancelled.
        """
        return state_of(self._get().state)

    @property
    def reason(self) -> str:
        """Why the job is in its state; may be empty."""
        return self._get().reason

    @property
    def exit_code(self) -> int | None:
        """The job's exit code; None if it has none, or not yet."""
        job = self._get()
        return job.exit_code if job.HasField("exit_code") else None

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the job ends; return its state. Raises `TimeoutError`."""
        with self._dial() as client:
            try:
                for job in client.watch(self.id, timeout):
                    if job.state in ENDS:
                        return state_of(job.state)
            except UnreachableError:
                if timeout is None:
                    raise
                raise TimeoutError(
                    f"job {self.id} has not ended after {timeout} s"
                ) from None
        return self.state

    def result(self, timeout: float | None = None) -> int:
        """Wait until the job ends; raise `JobFailedError` unless it succeeded."""
        state = self.wait(timeout)
        if state == "done":
            return 0
        job = self._get()
        code = job.exit_code if job.HasField("exit_code") else None
        raise JobFailedError(
            f"job {self.id} is {state}", because=job.reason, exit_code=code
        )

    def logs(self, *, follow: bool = False, task: str = "") -> Iterator[bytes]:
        """Yield the job's output; with `follow`, until the job ends."""
        request = pb.LogsRequest(job=self.id, task=task, follow=follow)
        with self._dial() as client:
            for piece in client.logs(request):
                yield piece.data

    def results(self, sort: str = "", *, frame: bool | None = None) -> Any:  # noqa: ANN401 - One of two, by what is installed.
        """Return params and latest metrics of all tasks, the best first.

        It is a DataFrame where pandas is installed, else a list of dicts; `frame`
        demands the one or the other. `sort` names a metric or param, with `-` before
        it for large values first. A metric of the same name as a param is called
        `metrics.NAME`.
        """
        from shoal.api.results import STEP, TASKS_MAX, order_of, results  # noqa: PLC0415 - Rarely used.

        with self._dial() as client:
            job = client.get(self.id, tasks_max=TASKS_MAX)
        found = results(job, order_of(sort) if sort else None)
        rows = [
            {"task": row.task, "state": row.state, **row.params}
            | {
                f"metrics.{name}" if name in row.params else name: (
                    _counted(value) if name == STEP else value
                )
                for name, value in row.metrics.items()
            }
            for row in found
        ]
        return as_frame(rows, frame)

    def metrics(self, task: str = "", *, frame: bool | None = None) -> Any:  # noqa: ANN401
        """Return every report of the job's tasks: a DataFrame, or a list of dicts.

        Each has `task`, `label`, `attempt`, `time` and `step`, and the metrics.
        """
        from shoal.api.client.metric_export import column_of, rows  # noqa: PLC0415

        with self._dial() as client:
            found = [
                {
                    "task": row.task.partition(".")[2],
                    "label": row.label,
                    "attempt": row.attempt,
                    "time": row.at_s,
                    "step": None if math.isnan(row.step) else _counted(row.step),
                    **{column_of(name): value for name, value in row.metrics.items()},
                }
                for row in rows(client, self.id, task)
            ]
        return as_frame(found, frame)

    def cancel(self, reason: str = "") -> bool:
        """Cancel the job; return False if it had already ended."""
        with self._dial() as client:
            return not client.cancel(self.id, reason).had_ended

    def pull(self, to: str | Path | None = None) -> list[Path]:
        """Download the job's outputs; return the folders, one per task.

        Folders are below `to`, by default `out/` and the job's id. A task without
        outputs, such as one that still runs, gives its latest checkpoint. Existing
        files of the same name are replaced.
        """
        from shoal.api.client.shipping import take_outputs  # noqa: PLC0415 - Rarely used.

        with self._dial() as client:
            reply = client.outputs(self.id, "")
            folder = Path(to) if to is not None else Path("out") / self.id
            taken = take_outputs(reply, client, folder)
        return [Path(each.folder) for each in taken]

    def _get(self) -> pb.Job:
        with self._dial() as client:
            return client.get(self.id, tasks_max=1)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def _counted(step: float) -> float:
    """Return a step as people count: 3, not 3.0."""
    return int(step) if step.is_integer() else step


def _state_text(job: pb.Job) -> str:
    """Say how a job stands: its state, how many of its tasks are done, and why."""
    counts = job.counts
    whole = sum(value for _, value in counts.ListFields())
    done = f", {counts.done} of {whole} tasks done" if whole > 1 else ""
    return f"{state_of(job.state)}{done}" + (f": {job.reason}" if job.reason else "")


def as_frame(rows: list[dict[str, Any]], frame: bool | None) -> Any:  # noqa: ANN401
    """Return rows as a DataFrame, or as they are where there is no pandas."""
    if frame is False:
        return rows
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        if frame:
            raise UsageError(
                "there is no DataFrame without pandas",
                because="it is not installed here",
                hint="`pip install pandas`, or leave out frame=True",
            ) from None
        return rows
    return pandas.DataFrame(rows)


def spec_fields(work: str | Path | Mapping[str, Any] | JobSpec) -> dict[str, Any]:
    """Return a spec of any accepted form as JSON fields; raise if it is invalid."""
    import msgspec  # noqa: PLC0415 - Function calls do not need it.

    from shoal.model.spec.spec import JobSpec  # noqa: PLC0415
    from shoal.model.spec.submission import load_spec  # noqa: PLC0415

    if isinstance(work, JobSpec):
        spec = work
    elif isinstance(work, Path) or (isinstance(work, str) and _is_file(work)):
        path = Path(work)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            because = getattr(error, "strerror", "") or str(error)
            raise UsageError(
                f"cannot read {path}", because=because, hint="is the name right?"
            ) from None
        spec = load_spec(text, "json" if path.suffix == ".json" else "yaml")
    elif isinstance(work, str):
        spec = load_spec(json.dumps({"command": shlex.split(work)}), "json")
    else:
        spec = load_spec(json.dumps(dict(work)), "json")
    fields: dict[str, Any] = msgspec.to_builtins(spec)
    return fields


def _is_file(text: str) -> bool:
    return text.endswith(FILES) and len(shlex.split(text)) == 1
