"""`shoal submit`: submit a job and return."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields, plan_fields
from shoal.api.job_ids import new_job_id
from shoal.api.shoal_pb2 import PlanRequest, SubmitRequest
from shoal.cli.display.printing import echo_json, first_run_text, size_text
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.job_input.spec_flags import JobCommand, job_options, spec_of
from shoal.cli.options import json_option, node_option, quiet_option, suggest, talk
from shoal.cli.tasks import carrying
from shoal.cli.terminal import echo
from shoal.errors import ShoalError, UsageError

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import PlanReply, SubmitReply


@click.command(cls=JobCommand)
@job_options
@click.option(
    "--offers/--no-offers",
    default=None,
    help="Show where it could run; by default only in a terminal.",
)
@node_option
@json_option
@quiet_option
def submit(
    words: tuple[str, ...],
    config: str | None,
    node: str | None,
    as_json: bool,
    quiet: bool,
    offers: bool | None,
    **flags: Any,  # noqa: ANN401 - As many as a job has.
) -> None:
    """Submit a job and print its id.

    A job is a FILE in YAML or JSON, flags, or a command after --. Flags override the
    file.
    """
    spec = spec_of(words, config, flags)
    _refuse_input(spec, quiet=quiet)
    if offers is None:
        offers = not as_json and sys.stderr.isatty()
    plan: PlanReply | None = None
    with api.connect(node) as client:
        packed = pack(client, spec, quiet=quiet or as_json)
        if offers:
            plan = ask_for_offers(client, packed)
        reply = send_in(client, packed)
    job = reply.job
    if as_json:
        found = {} if plan is None else {"offers": plan_fields(plan)}
        echo_json({"job": job_fields(job), "needs": reply.needs, **found})
        return
    echo(job.id)
    talk(f"job {job.id} ({job.name}) submitted · {reply.needs}", quiet=quiet)
    if plan is not None and not quiet:
        from shoal.cli.display.offers import tell  # noqa: PLC0415 - Not for scripts.

        tell(plan)
    for note in reply.notes:
        talk(f"note: {note}", quiet=quiet)
    if job.HasField("schedule"):
        talk(first_run_text(job.schedule), quiet=quiet)
        suggest(f"shoal show {job.id}", f"shoal cancel {job.id}", quiet=quiet)
        return
    suggest(
        f"shoal logs -f {job.id}",
        f"shoal explain {job.id}",
        f"shoal wait {job.id}",
        quiet=quiet,
    )


def _refuse_input(spec: str, *, quiet: bool) -> None:
    """Raise for a job that waits for input; say so if some is given in vain."""
    if json.loads(spec).get("stdin", "none") != "none":
        raise UsageError(
            "the job reads standard input, and submit sends none",
            because="this command returns before the job has begun",
            hint="`shoal run` sends its own, or leave `stdin` out",
        )
    if carrying.has_data():
        talk("note: standard input is not sent; `shoal run` sends it", quiet=quiet)


def pack(client: api.Client, spec: str, *, quiet: bool = False) -> str:
    """Upload the folders that a spec names; return it with their blob names."""
    document: dict[str, Any] = json.loads(spec)
    if "workdir" in spec or "python" in spec:
        from shoal.api.client.shipping import ship_all  # noqa: PLC0415 - Slow to import.

        with ProgressDisplay("uploading", quiet=quiet, unit=size_text) as progress:
            sent_all = ship_all(client, document, progress.step)
        for folder, shipped in sent_all.items():
            sent = f"{shipped.sent_files} of {shipped.files} files"
            amount = size_text(shipped.sent_bytes)
            talk(f"workdir {folder}: sent {sent}, {amount}", quiet=quiet)
            for note in shipped.notes:
                talk(f"note: {note}", quiet=quiet)
    return json.dumps(document)


def send_in(client: api.Client, packed: str, id_: str = "") -> SubmitReply:
    """Submit a spec whose folders have been uploaded, under a fresh id.

    Repeating a call with the same id does not create a second job.
    """
    return client.submit(SubmitRequest(job_id=id_ or new_job_id(), json=packed))


def ask_for_offers(client: api.Client, packed: str) -> PlanReply | None:
    """Return where a job could run, before it takes up the room itself.

    None on failure, which is no reason not to submit.
    """
    try:
        return client.plan(PlanRequest(json=packed))
    except ShoalError:
        return None
