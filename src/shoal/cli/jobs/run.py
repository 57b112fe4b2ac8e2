"""`shoal run`: submit a job, stream its output, and exit with its code."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.api import node_file
from shoal.api.client import client as api
from shoal.api.documents import job_fields
from shoal.api.job_ids import new_job_id
from shoal.api.shoal_pb2 import STREAM_METRICS, LogsRequest
from shoal.cli import write_nowhere
from shoal.cli.display.printing import (
    code_of,
    echo_json,
    end_text,
    has_ended,
    places,
    span,
    taken_fields,
    taken_text,
    waits_text,
)
from shoal.cli.display.task_output import follow, names_of
from shoal.cli.job_input.spec_flags import JobCommand, job_options, spec_of
from shoal.cli.jobs.submit import pack, send_in
from shoal.cli.options import (
    json_option,
    node_option,
    quiet_option,
    raw_option,
    suggest,
    talk,
)
from shoal.cli.tasks.carrying import terminal_here
from shoal.cli.tasks.sending import sending, with_stdin
from shoal.errors import NotFoundError, ShoalError, UnreachableError, UsageError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import FrameType

    from shoal.api.client.shipping import PulledOutputs
    from shoal.api.shoal_pb2 import ChannelTerminal, Job, LogPiece
    from shoal.cli.tasks.sending import Show

REASONS: Final = {
    signal.SIGINT: "Ctrl-C in {}",
    signal.SIGTERM: "SIGTERM to {}",
    signal.SIGHUP: "the terminal of {} was closed",
}
UNREAD: Final = "the output of shoal run was closed"

AGAIN_S: Final = 0.5
"""A Ctrl-C this long after the first signal is a second one."""


class StopSignal(KeyboardInterrupt):
    """The command was stopped by a signal; the text says which."""


@contextmanager
def stopped_by_signals(command: str) -> Generator[None]:
    """Raise `StopSignal` at the first signal that ends a command, and at no other.

    Signals come in pairs: from a shell and its terminal, or from a service manager.
    Only a second Ctrl-C, some time later, interrupts as usual. Ignored signals stay
    ignored, as with `nohup`.
    """
    first_s: float | None = None

    def heed(number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if first_s is None:
            first_s = now_s
            raise StopSignal(REASONS[signal.Signals(number)].format(command))
        if number == signal.SIGINT and now_s - first_s > AGAIN_S:
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in REASONS}
    heard = {n: old for n, old in before.items() if old is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, heed)
    try:
        yield
    finally:
        if first_s is None:  # Else nobody wants this to go on.
            for number, handler in heard.items():
                signal.signal(number, handler)


def is_unread(error: OSError) -> bool:
    """Whether output failed because its reader, or its terminal, has gone."""
    return error.errno in (errno.EPIPE, errno.EIO)


PATIENCE_S: Final = 2.0
"""How long a job waits before the user is told why."""


@click.command(cls=JobCommand)
@job_options
@click.option("--no-pull", is_flag=True, help="Do not download its outputs.")
@click.option(
    "-i", "--interactive", is_flag=True, help="Send standard input, if a terminal too."
)
@click.option("-t", "--tty", is_flag=True, help="Give the task this terminal.")
@raw_option
@click.option("--watch", is_flag=True, help="Plot curves instead of printing output.")
@node_option
@json_option
@quiet_option
def run(
    words: tuple[str, ...],
    config: str | None,
    node: str | None,
    as_json: bool,
    quiet: bool,
    no_pull: bool,
    watch: bool,
    raw: bool,
    **flags: Any,  # noqa: ANN401 - As many as a job has.
) -> None:
    """Submit a job, stream its output, and exit with its code.

    Starts a node in the background if none is running. Ctrl-C cancels the job; so do
    SIGTERM, closing the terminal, and a closed output pipe. Outputs of the job are
    written to out/JOB. With --json the job's output goes to stderr, and stdout gets
    only the JSON document.

    Standard input is sent if it is a pipe or a file, or with -i. With -t the task has
    this terminal, and Ctrl-C goes there: shoal run -it -- bash
    """
    asked, tty = flags.pop("interactive"), flags.pop("tty")
    terminal = _terminal(alone=not (watch or as_json)) if tty else None
    spec = spec_of(words, config, flags)
    _refuse_schedule(spec)
    home, quiet = Home.default(), quiet or as_json
    spec = with_stdin(spec, asked=asked, tty=tty, quiet=quiet)
    sends = json.loads(spec).get("stdin", "none") != "none"
    if not (node or node_file.in_task()) and node_file.running(home) is None:
        node_file.refuse_start_in_task()
        _start_node(home, quiet=quiet)
    with api.connect(node, home) as client:
        packed = pack(client, spec, quiet=quiet)
        began, id_ = time.monotonic(), new_job_id()
        with stopped_by_signals("shoal run"):
            try:
                job = _submitted(client, packed, id_, watch=watch, quiet=quiet)
                names = names_of(client.get(id_)) if _has_many_tasks(job) else None
                show: Show = partial(follow, names=names, aside=as_json, raw=raw)
                if watch and not as_json:
                    show = partial(_curves, client, job, names or {})
                telling = _telling(client, id_, began, quiet=quiet)
                if sends:
                    show = sending(client, id_, show, terminal, telling)
                end = _follow(client, job, show, has_input=sends)
            except (StopSignal, OSError) as why:
                end = _cancelled(client, id_, why, quiet=quiet)
        talk(end_text(end, time.monotonic() - began), quiet=quiet)
        taken: list[PulledOutputs] = []
        if "outputs" in spec and not no_pull:
            from shoal.cli.jobs.pull import take  # noqa: PLC0415 - Slow to import.

            taken = take(client, end.id)
        if as_json:
            echo_json({"job": job_fields(end), "outputs": taken_fields(taken)})
    for each in filter(lambda each: each.files, taken):
        talk(taken_text(each), quiet=quiet)
    suggest("shoal ps", f"shoal show {end.id}", quiet=quiet)
    sys.exit(code_of(end))


def _refuse_schedule(spec: str) -> None:
    if '"schedule"' in spec and json.loads(spec).get("schedule"):
        raise UsageError(
            "a job with a schedule does not run now",
            because="each of its runs starts at its own time",
            hint="`shoal submit` with the same arguments; "
            "`shoal retry JOB` runs it once more at any time",
        )


def _terminal(*, alone: bool) -> ChannelTerminal:
    """Return this terminal for a task to have; raise if somebody else needs it."""
    if not alone:
        raise UsageError(
            "-t does not go with --watch or --json",
            because="the task has the whole terminal",
            hint="leave one of them out",
        )
    return terminal_here()


def _submitted(
    client: api.Client, packed: str, id_: str, *, watch: bool, quiet: bool
) -> Job:
    reply = send_in(client, packed, id_)
    for note in reply.notes:
        talk(f"note: {note}", quiet=quiet)
    if watch and (where := (info := client.info()).web_address):
        scheme = "https" if info.web_print else "http"
        page = f"{scheme}://{where}/jobs/{id_}   (shoal web {id_} opens it)"
        talk(f"web  {page}", quiet=quiet)
    return reply.job


def _cancelled(
    client: api.Client, job: str, why: StopSignal | OSError, *, quiet: bool
) -> Job:
    """Cancel a job because this command was interrupted; return its final state."""
    try:
        return _cancel(client, job, _reason(why), quiet=quiet)
    except (
        StopSignal
    ) as late:  # A closed terminal fails a write before its signal arrives.
        return _cancel(client, job, _reason(late), quiet=quiet)


def _reason(why: StopSignal | OSError) -> str:
    if isinstance(why, StopSignal):
        return str(why)
    if not is_unread(why):
        raise why
    write_nowhere()
    return UNREAD


def _cancel(client: api.Client, job: str, reason: str, *, quiet: bool) -> Job:
    talk("", quiet=quiet)
    talk(f"cancelling job {job}", quiet=quiet)
    try:
        client.cancel(job, reason)
        return client.get(job)
    except NotFoundError:  # It was not submitted yet.
        raise click.Abort from None
    except UnreachableError as error:
        error.hint = (
            f"job {job} may still run: `shoal cancel {job}` once the node answers"
        )
        raise


def _left_alone(
    job: str, error: UnreachableError, *, has_input: bool
) -> UnreachableError:
    """Report that a job outlives the lost node, and how to get back to it."""
    hint = (
        f"job {job} is not lost: `shoal up` resumes it, "
        f"and `shoal logs -f {job}` shows its output"
    )
    if has_input:
        hint = f"job {job} ends, as nobody sends its standard input any more"
    return UnreachableError(error.what, because=error.because, hint=hint)


def _start_node(home: Home, *, quiet: bool) -> None:
    from shoal.cli.display.printing import info_lines  # noqa: PLC0415
    from shoal.cli.nodes import background  # noqa: PLC0415 - Not needed the second time.

    started = background.start(home)
    if started is None:
        return
    text = "no node running: started one in the background (shoal down to stop)"
    talk(text, quiet=quiet)
    for line in info_lines(started.info, port_was_taken=started.port_was_taken):
        talk(line, quiet=quiet)


def _curves(
    client: api.Client, job: Job, names: dict[str, str], pieces: Iterable[LogPiece]
) -> None:
    from shoal.cli.display.training_curves import watch  # noqa: PLC0415 - Few jobs have curves.

    aim = LogsRequest(job=job.id, follow=True, stream=STREAM_METRICS)
    watch(pieces, client.logs(aim), names, job.objective.metric)


def _follow(
    client: api.Client,
    job: Job,
    show: Show,
    *,
    has_input: bool,
) -> Job:
    """Show output until the job ends; return how it did."""
    request = LogsRequest(job=job.id, follow=True)
    try:
        show(client.logs(request))
        return client.get(job.id, tasks_max=1)
    except UnreachableError as error:
        raise _left_alone(job.id, error, has_input=has_input) from None


def _telling(
    client: api.Client, job: str, began: float, *, quiet: bool
) -> threading.Thread:
    """Tell where the job runs in the background."""
    tell = partial(_tell_placing, client, job, began, quiet=quiet)
    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    return telling


def _tell_placing(client: api.Client, job: str, began: float, *, quiet: bool) -> None:
    """Report where the job runs, or why it waits, while another thread shows output."""
    if quiet:
        return
    timer = threading.Timer(PATIENCE_S, _tell_waiting, args=(client, job))
    timer.daemon = True
    timer.start()
    with contextlib.suppress(ShoalError):  # The main thread meets it as well.
        for view in client.watch(job):
            never_ran = has_ended(view) and not view.HasField("exit_code")
            if view.nodes and not never_ran:
                where, took = places(view.nodes), span(time.monotonic() - began)
                talk(f"job {job} placed on {where} in {took}")
                break
            if has_ended(view):
                break
    timer.cancel()


def _tell_waiting(client: api.Client, job: str) -> None:
    with contextlib.suppress(ShoalError):
        talk(waits_text(client.explain(job)))


def _has_many_tasks(job: Job) -> bool:
    counts = job.counts
    return counts.waiting + counts.blocked + counts.running > 1
