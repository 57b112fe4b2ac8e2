"""Rows of the monitor's tables, as text and small bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from shoal.api.documents import state_of
from shoal.cli.display.printing import age, gpus_text, places, tasks_text, why
from shoal.cli.nodes.nodes import Shares, idle_state, lent_memory, path_text
from shoal.cli.terminal import safe_line

if TYPE_CHECKING:
    from shoal.api import shoal_pb2 as pb
    from shoal.cli.monitor.watching import Snapshot

NODE_COLUMNS: Final = ("NODE", "STATE", "TASKS", "PATH", "CPU", "MEMORY", "GPU")
JOB_COLUMNS: Final = ("JOB", "NAME", "STATE", "TASKS", "NODE", "AGE", "WHY")
BAR: Final = 8
WHY_WIDTH: Final = 60
STYLES: Final = {
    "running": "cyan",
    "done": "green",
    "failed": "red",
    "unknown": "red",
    "cancelled": "yellow",
    "waiting": "yellow",
    "draining": "yellow",
}


def node_row(node: pb.Node) -> tuple[Text, ...]:
    """Return the row of a node; bars show what is lent, percentages what is used."""
    path = Text(safe_line(path_text(node)))
    name = Text(safe_line(node.name.petname), style="bold" if node.self else "")
    used, total, free = Shares.of(node), node.total, node.free
    if not node.worker:
        state = Text(safe_line(idle_state(node, brief=True)), style="dim")
        known = (Text(share or "-", style="dim") for share in used)
        return (name, state, Text("-", style="dim"), path, *known)
    return (
        name,
        _state("draining" if node.draining else "up"),
        Text(str(node.active), justify="right"),
        path,
        _bar(total.cpu_milli - free.cpu_milli, total.cpu_milli, 1_000, used.cpu),
        _bar(
            lent_memory(node),
            total.memory_bytes,
            1 << 30,
            f"GiB {used.memory}",
        ),
        _gpus(node, used.gpu),
    )


def job_row(job: pb.Job) -> tuple[Text, ...]:
    """Return the row of a job."""
    return (
        Text(safe_line(job.id), style="bold"),
        Text(safe_line(job.name[:24])),
        _state(state_of(job.state)),
        _tasks(job),
        Text(safe_line(places(job.nodes))),
        Text(age(job.submitted_s)),
        Text(safe_line(why(job)[:WHY_WIDTH]), style="dim"),
    )


def summary(picture: Snapshot) -> str:
    """Summarise the shoal in one line, for a log or the top of a screen."""
    workers = [node for node in picture.nodes if node.worker]
    cpu = sum(node.total.cpu_milli for node in workers)
    used = cpu - sum(node.free.cpu_milli for node in workers)
    gpus = sum(len(node.devices) for node in workers)
    gpu_used = gpus - sum(node.free.gpu_milli for node in workers) / 1_000
    running = sum(job.counts.running for job in picture.jobs)
    waiting = sum(job.counts.waiting for job in picture.jobs)
    here = sum(not node.away for node in picture.nodes)
    parts = [
        _count(here, "node"),
        f"CPU {used / 1_000:g}/{cpu / 1_000:g}",
        f"GPU {gpu_used:g}/{gpus}" if gpus else "no GPU",
        _count(picture.active, "active job"),
        f"{_count(running, 'task')} running, {waiting} waiting",
    ]
    return " · ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _state(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))


def _tasks(job: pb.Job) -> Text:
    text = tasks_text(job.counts)
    if job.HasField("fraction") and state_of(job.state) == "running":
        filled = round(job.fraction * BAR)
        return Text.assemble(("█" * filled, "cyan"), ("░" * (BAR - filled), "dim"))
    return Text(text)


def _gpus(node: pb.Node, share: str) -> Text:
    if not node.devices:
        return Text("-", style="dim")
    used = 1_000 * len(node.devices) - node.free.gpu_milli
    bar = _bar(used, 1_000 * len(node.devices), 1_000, gpus_text(node.devices))
    return Text.assemble(bar, f" {share}" if share else "")


def _bar(used: int, total: int, unit: int, rest: str) -> Text:
    share = used / total if total else 0.0
    filled = min(BAR, round(share * BAR))
    style = "red" if share > 0.95 else "cyan"
    number = safe_line(f" {used / unit:.3g}/{total / unit:.3g} {rest}".rstrip())
    bar = (("█" * filled, style), ("░" * (BAR - filled), "dim"))
    return Text.assemble(*bar, number)
