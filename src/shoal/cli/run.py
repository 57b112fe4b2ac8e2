"""`shoal run`: submit a job, show what it writes, and end as it ends."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.api import client as api
from shoal.api import whereabouts
from shoal.api.documents import job_fields
from shoal.api.job_ids import new_job_id
from shoal.api.shoal_pb2 import LogsRequest
from shoal.cli import write_nowhere
from shoal.cli.ends import code_of, end_text, waits_text
from shoal.cli.following import follow
from shoal.cli.options import (
    json_option,
    node_option,
    quiet_option,
    raw_option,
    suggest,
    talk,
)
from shoal.cli.outputs import taken_fields, taken_text
from shoal.cli.printing import echo_json, has_ended, places, span
from shoal.cli.spec_flags import JobCommand, job_options, spec_of
from shoal.cli.stopping import UNREAD, Stopped, is_unread, stopped_by_signals
from shoal.cli.submit import pack, send_in
from shoal.errors import NotFoundError, ShoalError, UnreachableError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.api.shipping import Taken
    from shoal.api.shoal_pb2 import Job, LogPiece

PATIENCE_S: Final = 2.0
"""After this a user is told why a job waits."""


@click.command(cls=JobCommand)
@job_options
@click.option("--no-pull", is_flag=True, help="Leave its outputs where they are.")
@raw_option
@click.option("--watch", is_flag=True, help="Show curves instead of lines.")
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
    """Run a job: submit it, show its output, and exit with its code.

    Starts a node in the background if none is running. Ctrl-C cancels the job, and so
    do SIGTERM and the end of the terminal, or of whoever reads the output. What the job
    leaves in its outputs is written to out/JOB. With --json all that it writes goes to
    stderr, and stdout is the answer alone.
    """
    spec = spec_of(words, config, flags)
    home, quiet = Home.default(), quiet or as_json
    if not node and whereabouts.running(home) is None:
        _start_node(home, quiet=quiet)
    with api.connect(node, home) as client:
        packed = pack(client, spec, quiet=quiet)
        began, id_ = time.monotonic(), new_job_id()
        with stopped_by_signals():
            try:
                job = _submitted(client, packed, id_, watch=watch, quiet=quiet)
                many = _has_many_tasks(job)
                plain = partial(follow, prefixed=many, aside=as_json, raw=raw)
                show = _curves if watch and not as_json else plain
                end = _follow(client, job, began, show, quiet=quiet)
            except (Stopped, OSError) as why:
                end = _cancelled(client, id_, why, quiet=quiet)
        talk(end_text(end, time.monotonic() - began), quiet=quiet)
        taken: list[Taken] = []
        if "outputs" in spec and not no_pull:
            from shoal.cli.pull import take  # noqa: PLC0415 - Slow to import.

            taken = take(client, end.id)
        if as_json:
            echo_json({"job": job_fields(end), "outputs": taken_fields(taken)})
    for each in taken:
        talk(taken_text(each), quiet=quiet)
    suggest("shoal ps", f"shoal show {end.id}", quiet=quiet)
    sys.exit(code_of(end))


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
    client: api.Client, job: str, why: Stopped | OSError, *, quiet: bool
) -> Job:
    """Cancel a job because somebody ended this command; return what became of it."""
    try:
        return _cancel(client, job, _reason(why), quiet=quiet)
    except Stopped as late:  # A closed terminal fails first, and is heard of next.
        return _cancel(client, job, _reason(late), quiet=quiet)


def _reason(why: Stopped | OSError) -> str:
    if isinstance(why, Stopped):
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
        error.hint = f"job {job} may go on: `shoal cancel {job}` once the node answers"
        raise


def _left_alone(job: str, error: UnreachableError) -> UnreachableError:
    """Say that a job outlives the node that was asked, and how to come back to it."""
    return UnreachableError(
        error.what,
        because=error.because,
        hint=f"job {job} is not lost: `shoal up` goes on with it, "
        f"and `shoal logs -f {job}` shows what it writes",
    )


def _start_node(home: Home, *, quiet: bool) -> None:
    from shoal.cli import background  # noqa: PLC0415 - Not needed the second time.
    from shoal.cli.printing import info_lines  # noqa: PLC0415

    started = background.start(home)
    if started is None:
        return
    text = "no node running: started one in the background (shoal down to stop)"
    talk(text, quiet=quiet)
    for line in info_lines(started.info, port_was_taken=started.port_was_taken):
        talk(line, quiet=quiet)


def _curves(pieces: Iterable[LogPiece]) -> None:
    from shoal.cli.watching import watch  # noqa: PLC0415 - Few jobs have curves.

    watch(pieces)


def _follow(
    client: api.Client,
    job: Job,
    began: float,
    show: Callable[[Iterable[LogPiece]], None],
    *,
    quiet: bool,
) -> Job:
    """Show output in this thread while another says where the job runs."""
    teller = threading.Thread(
        target=_tell_placing, args=(client, job.id, began), daemon=True
    )
    if not quiet:
        teller.start()
    request = LogsRequest(job=job.id, follow=True)
    try:
        show(client.logs(request))
        return client.get(job.id, tasks_max=1)
    except UnreachableError as error:
        raise _left_alone(job.id, error) from None


def _tell_placing(client: api.Client, job: str, began: float) -> None:
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
