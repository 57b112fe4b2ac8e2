"""How a job ended, as an exit code and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.api.documents import state_of
from shoal.cli.display.printing import span
from shoal.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import ExplainReply, Job


def code_of(job: Job) -> int:
    """Return the exit code of `run` and `wait` for a job that has ended."""
    match state_of(job.state):
        case "done":
            return ExitCode.OK
        case "cancelled":
            return ExitCode.CANCELLED
        case "failed" | "unknown":
            code = job.exit_code if job.HasField("exit_code") else 0
            return shell_code(code) if code else ExitCode.JOB_FAILED
        case _:
            return ExitCode.NOT_FINISHED


def shell_code(code: int) -> int:
    """Return an exit code as a shell shows it: 128 plus the number of a signal."""
    if 0 <= code <= 255:
        return code
    return (128 - code) & 255 if code < 0 else 255


def end_text(job: Job, took_s: float | None = None) -> str:
    """Describe in one line how a job ended."""
    time = "" if took_s is None else f" after {span(took_s)}"
    match state_of(job.state):
        case "done":
            but = f": {job.reason}" if job.reason else ""
            return f"job {job.id} finished{time.replace('after', 'in')} (exit 0){but}"
        case "failed" if job.HasField("exit_code"):
            told = job.reason.endswith(f"exit code {job.exit_code}")
            but = f": {job.reason}" if job.reason and not told else ""
            return f"job {job.id} failed{time} (exit {job.exit_code}){but}"
        case state:
            verb = "was cancelled" if state == "cancelled" else state
            reason = f": {job.reason}" if job.reason else ""
            return f"job {job.id} {verb}{time}{reason}"


def waits_text(reply: ExplainReply) -> str:
    """Explain in one line why a job waits."""
    task = next((t for t in reply.tasks if state_of(t.state) == "waiting"), None)
    if task is None:
        return f"job {reply.job_id} has not started yet"
    reasons = [*task.why, *(f"{r.node.petname}: {r.reason}" for r in task.rejected)]
    why = reasons[0] if reasons else "there is room; its turn will come soon"
    return f"job {reply.job_id} waits: {why} (shoal explain {reply.job_id})"
