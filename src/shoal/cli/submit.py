"""`shoal submit`: hand a job in and return."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from shoal.api import client as api
from shoal.api.documents import job_fields
from shoal.api.shoal_pb2 import SubmitRequest
from shoal.cli.options import json_option, node_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json
from shoal.cli.spec_flags import JobCommand, job_options, new_job_id, spec_of

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import SubmitReply


@click.command(cls=JobCommand)
@job_options
@node_option
@json_option
@quiet_option
def submit(
    words: tuple[str, ...],
    config: str | None,
    node: str | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401 - As many as a job has.
) -> None:
    """Submit a job and print its id.

    A job is a FILE in YAML or JSON, flags, a command after --, or a file with flags
    that change it.
    """
    spec = spec_of(words, config, flags)
    with api.connect(node) as client:
        reply = hand_in(client, spec, quiet=quiet or as_json)
    job = reply.job
    if as_json:
        echo_json({"job": job_fields(job), "needs": reply.needs})
        return
    click.echo(job.id)
    talk(f"job {job.id} ({job.name}) submitted · {reply.needs}", quiet=quiet)
    for note in reply.notes:
        talk(f"note: {note}", quiet=quiet)
    suggest(
        f"shoal logs -f {job.id}",
        f"shoal explain {job.id}",
        f"shoal wait {job.id}",
        quiet=quiet,
    )


def hand_in(client: api.Client, spec: str, *, quiet: bool = False) -> SubmitReply:
    """Submit a spec under an id of its own; a repeat would not make a second job.

    The folders that it names are sent first.
    """
    document: dict[str, Any] = json.loads(spec)
    if "workdir" in spec:
        from shoal.api.shipping import ship_all  # noqa: PLC0415 - Slow to import.

        for folder, shipped in ship_all(client, document).items():
            sent = f"{shipped.sent_files} of {shipped.files} files"
            amount = f"{shipped.sent_bytes / 1e6:.1f} MB"
            talk(f"workdir {folder}: sent {sent}, {amount}", quiet=quiet)
            for note in shipped.notes:
                talk(f"note: {note}", quiet=quiet)
    request = SubmitRequest(job_id=new_job_id(), json=json.dumps(document))
    return client.submit(request)
