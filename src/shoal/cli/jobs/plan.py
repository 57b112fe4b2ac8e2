"""`shoal plan`: show where a job would run before submitting it."""

from __future__ import annotations

import sys
from typing import Any

import click

from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.api.documents import plan_fields
from shoal.cli.display.offers import HEADINGS, rows
from shoal.cli.display.printing import echo_json, echo_table, first_run_text
from shoal.cli.exit_codes import ExitCode
from shoal.cli.job_input.spec_flags import JobCommand, job_options, spec_of
from shoal.cli.options import json_option, node_option, suggest, talk
from shoal.cli.terminal import echo


@click.command(cls=JobCommand)
@job_options
@node_option
@json_option
def plan(
    words: tuple[str, ...],
    config: str | None,
    node: str | None,
    as_json: bool,
    **flags: Any,  # noqa: ANN401 - As many as a job has.
) -> None:
    """Show where a job would run, best node first, without submitting it.

    Takes the arguments of `shoal submit`. Exits with 104 if there is no room now.
    """
    spec = spec_of(words, config, flags)
    with api.connect(node) as client:
        reply = client.plan(pb.PlanRequest(json=spec))
    if as_json:
        echo_json(plan_fields(reply))
    else:
        _print(reply)
    sys.exit(ExitCode.OK if reply.fits_now else ExitCode.NOT_PLACEABLE)


def _print(reply: pb.PlanReply) -> None:
    for group in reply.groups:
        together = f", {group.least} at once" if group.least > 1 else ""
        count = "1 task" if group.tasks == 1 else f"{group.tasks} tasks{together}"
        after = f", after {' and '.join(group.after)}" if group.after else ""
        echo(f"{group.group}: {count}{after}, each {group.needs}")
        if group.prospects:
            echo_table(HEADINGS, rows(group.prospects, group.after))
        else:
            echo("no worker is known here: add one with shoal invite")
        if group.more:
            echo(f"and {group.more} other nodes")
        for words in group.network:
            echo(f"network: {words}")
        for words in group.memory:
            echo(words)
        if group.never:
            echo(f"never: {group.never}")
        if group.room < group.least and group.helps:
            echo("helps: " + "   |   ".join(group.helps))
    if reply.more:
        echo(f"and {reply.more} other groups")
    if reply.HasField("schedule"):
        talk(f"{first_run_text(reply.schedule)} · {reply.needs}")
        suggest("shoal submit with the same arguments", "shoal nodes")
    elif reply.fits_now:
        later = ", the others after it" if any(g.after for g in reply.groups) else ""
        talk(f"it would start now{later} · {reply.needs}")
        suggest("shoal submit with the same arguments", "shoal nodes")
    elif any(group.never for group in reply.groups):
        talk(f"no node that is here can run it · {reply.needs}")
        suggest("shoal submit waits for one that can", "shoal nodes")
    else:
        talk(f"there is no room now · {reply.needs}")
        suggest("shoal submit waits for room", "shoal nodes")
