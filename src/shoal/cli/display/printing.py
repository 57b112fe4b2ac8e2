"""Format jobs and nodes for the terminal and as JSON.

JSON documents have a `version`. It rises when a field is removed or changes its
meaning; new fields may appear at any time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.api import shoal_pb2 as pb
from shoal.api.documents import state_of
from shoal.cli.config.settings import current
from shoal.cli.exit_codes import ExitCode
from shoal.cli.terminal import echo, echo_styled, safe_line
from shoal.task_metrics import as_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shoal.api.client.shipping import PulledOutputs

VERSION: Final = 1
GIB: Final = 1 << 30
LINE_LENGTH_MAX: Final = 100
QUOTED_LENGTH_MAX: Final = 80
GAP: Final = "  "
LAST_COLUMN_MIN: Final = 12

_COLOURS: Final = {
    "running": "cyan",
    "done": "green",
    "failed": "red",
    "unknown": "red",
    "cancelled": "yellow",
}
_ENDS: Final = frozenset({"done", "failed", "cancelled", "unknown"})


def echo_json(fields: dict[str, Any]) -> None:
    """Print a JSON document on one line."""
    # Every letter that is not plain ASCII is escaped, but for one control.
    document = as_json({"version": VERSION, **fields})
    echo(json.dumps(document, allow_nan=False).replace("\x7f", "\\u007f"))


def echo_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; in a terminal the last column is cut at the edge."""
    for line in table_lines(headings, rows):
        echo_styled(line)


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, err: bool = False
) -> Iterator[str]:
    """Return a table as coloured, safe lines for stdout or stderr."""
    lines = [tuple(headings), *(tuple(map(safe_line, row)) for row in rows)]
    widths = [max(width_of(line[n]) for line in lines) for n in range(len(headings))]
    if (sys.stderr if err else sys.stdout).isatty():
        left = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        from shutil import get_terminal_size  # noqa: PLC0415 - Only for people.

        room = get_terminal_size().columns - left
        if room < widths[-1] and not any(line[-1] for line in lines[1:]):
            lines[0] = (*lines[0][:-1], "")  # It would wrap, to head nothing.
        most = max(LAST_COLUMN_MIN, room)
        lines = [(*line[:-1], shortened(line[-1], most)) for line in lines]
        widths[-1] = min(widths[-1], most)
    for number, line in enumerate(lines):
        cells = [
            (_coloured(cell) if number else cell) + " " * (width - width_of(cell))
            for cell, width in zip(line, widths, strict=True)
        ]
        yield GAP.join(cells).rstrip()


def width_of(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - Rare.

    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(combining, text)))


def _coloured(word: str) -> str:
    colour = _COLOURS.get(word)
    if colour is None or not wants_colours():
        return word
    return click.style(word, fg=colour)  # Stripped where there is no terminal.


def wants_colours() -> bool:
    """Whether to use colours: the setting wins over `NO_COLOR`."""
    value, origin = current().find("color")
    return not os.environ.get("NO_COLOR") if origin == "default" else bool(value)


# Jobs.


def has_ended(job: pb.Job) -> bool:
    """Whether the job is final."""
    return state_of(job.state) in _ENDS


_COUNTS: Final = pb.Counts.DESCRIPTOR.fields


def tasks_text(counts: pb.Counts) -> str:
    """Format how many tasks are done, of how many."""
    tasks = total(counts)
    return "1 task" if tasks == 1 else f"{counts.done}/{tasks}"


def total(counts: pb.Counts) -> int:
    """Return how many tasks were counted, in all states."""
    return sum(number for _, number in counts.ListFields())


def places(nodes: Sequence[pb.NodeName]) -> str:
    """Format where something runs, briefly."""
    if len(nodes) > 2:
        return f"{nodes[0].petname} +{len(nodes) - 1}"
    return ", ".join(node.petname for node in nodes)


def shortened(text: str, most: int = LINE_LENGTH_MAX) -> str:
    """Shorten a text to one line, with an ellipsis for the rest."""
    line = safe_line(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def quoted(text: str, most: int = QUOTED_LENGTH_MAX) -> str:
    """Quote a text from another node: one line, short, without inner quotes."""
    return f'"{shortened(text, most).replace(chr(34), chr(39))}"'


def why(job: pb.Job) -> str:
    """Explain the state of a job in one line."""
    if job.reason:
        return job.reason
    if job.HasField("exit_code") and job.exit_code:
        return f"exit code {job.exit_code}"
    if job.HasField("fraction") and not has_ended(job):
        return f"{job.fraction:.0%}"
    return ""


# Nodes.


def job_cells(job: pb.Job) -> tuple[str, ...]:
    """Return a table row for a job: #, id, name, state, tasks, where, age, why."""
    return (
        str(job.number),
        job.id,
        job.name[:24],
        state_of(job.state),
        tasks_text(job.counts),
        places(job.nodes),
        age(job.submitted_s),
        why(job)[:72],
    )


def has_text(node: pb.Node) -> str:
    """Summarise what a node lends."""
    if not node.worker:
        return "lends nothing"
    total = node.total
    cpu, memory = f"{total.cpu_milli / 1000:g} CPU", gib(total.memory_bytes)
    return f"{cpu} · {memory} · {gpus_text(node.devices)}"


def gpus_text(devices: Sequence[pb.Device]) -> str:
    """List GPUs by model, memory and count, in the syntax of a job spec."""
    kinds: dict[str, int] = {}
    for device in devices:
        parts = [device.model or "GPU"]
        if device.memory_bytes:
            parts.append(f"{device.memory_bytes / GIB:.4g}GB")
        kind = ":".join(parts)
        kinds[kind] = kinds.get(kind, 0) + 1
    named = [f"{kind}:{count}" for kind, count in kinds.items()]
    return ", ".join(named) or "no GPU"


def gib(amount_bytes: int) -> str:
    """Format an amount of memory."""
    return f"{amount_bytes / GIB:.3g} GiB"


def size_text(amount_bytes: int) -> str:
    """Format a file size in bytes, kB, MB or GB."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if amount_bytes >= size:
            return f"{amount_bytes / size:.1f} {unit}"
    return "1 byte" if amount_bytes == 1 else f"{amount_bytes} bytes"


def info_lines(info: pb.NodeInfo, *, port_was_taken: bool = False) -> list[str]:
    """Return the lines that introduce a node when it starts."""
    name = info.name
    here = all("/127.0.0.1/" in address for address in info.addresses)
    shown = [address.partition("/p2p/")[0] for address in info.addresses[:2]]
    reach = "private, this machine only" if here else ", ".join(shown)
    lines = [
        f"  node  {name.petname}   {short_id(name.id)}   {has_text(info.node)}",
        f'  api   {info.api_address}   net "{info.shoal}" ({reach})',
    ]
    if info.far_address:
        lines.append(f"  tls   {info.far_address}   (clients on other machines)")
    if info.web_address:
        scheme = "https" if info.web_print else "http"
        lines.append(f"  web   {scheme}://{info.web_address}   (shoal web opens it)")
        if info.web_print:
            lines.append(f"        certificate SHA-256 {info.web_print}")
    lines += [f"  note  {warning}" for warning in info.warnings]
    if limit := _limit_text(info.node):
        lines.append(f"  note  {limit}")
    if port_was_taken:
        why = "port 50051 is taken, so another was chosen; commands here find it"
        lines.append(f"  note  {why}")
    if info.web_port_was_taken:
        lines.append("  note  port 7420 is taken, so the page is on the next free one")
    return lines


def _limit_text(node: pb.Node) -> str:
    """Describe which kinds of tasks a node accepts, unless it accepts all."""
    if not node.worker or "process" in node.drivers:
        return ""
    words = {"container": "images", "recipe": "recipes"}
    kinds = [words[each] for each in node.drivers if each in words]
    return f"only {' and '.join(kinds)} may run here"


def short_id(node: str) -> str:
    """Shorten a node id to a prefix that people can compare."""
    return f"{node[:12]}…{node[-4:]}"


# Downloaded outputs.


def taken_text(taken: PulledOutputs) -> str:
    """Describe the files written for one task."""
    files = "1 file" if taken.files == 1 else f"{taken.files} files"
    what = "checkpoint" if taken.checkpoint else "outputs"
    return f"{what}  {taken.folder}  ({files}, {size_text(taken.bytes)})"


def taken_fields(taken: Iterable[PulledOutputs]) -> list[dict[str, Any]]:
    """Return the files written, for JSON."""
    names = ("task", "folder", "files", "bytes", "checkpoint")
    return [{name: getattr(each, name) for name in names} for each in taken]


# Time.


def age(since_s: float) -> str:
    """Format how long ago something was."""
    return span(max(0.0, time.time() - since_s))


def moment_text(wall_s: float) -> str:
    """Format a moment in the time zone of this machine, if it is known."""
    if not wall_s:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_s))


def first_run_text(schedule: pb.Schedule) -> str:
    """Say when a schedule runs first, by the clock of this machine."""
    wait = span(max(0.0, schedule.next_s - time.time()))
    return f"first run {moment_text(schedule.next_s)}, in {wait}"


def span(duration_s: float) -> str:
    """Format a duration in its two largest units."""
    if duration_s < 1:
        return f"{duration_s:.2f} s"
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    seconds = round(duration_s)
    for size, unit, smaller, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole} {unit} {rest // smaller} {small_unit}"
    return f"{seconds} s"


# How jobs end.


def code_of(job: pb.Job) -> int:
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


def end_text(job: pb.Job, took_s: float | None = None) -> str:
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


def waits_text(reply: pb.ExplainReply) -> str:
    """Explain in one line why a job waits."""
    task = next((t for t in reply.tasks if state_of(t.state) == "waiting"), None)
    if task is None:
        return f"job {reply.job_id} has not started yet"
    reasons = [*task.why, *(f"{r.node.petname}: {r.reason}" for r in task.rejected)]
    why = reasons[0] if reasons else "there is room; its turn will come soon"
    return f"job {reply.job_id} waits: {why} (shoal explain {reply.job_id})"
