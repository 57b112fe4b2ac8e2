"""`shoal events`: print events as they happen."""

from __future__ import annotations

import time

import click

from shoal.api.client import client as api
from shoal.api.documents import event_fields
from shoal.api.shoal_pb2 import EventsRequest
from shoal.cli.display.printing import echo_json
from shoal.cli.options import any_node_option, json_option
from shoal.cli.terminal import echo


@click.command()
@click.option(
    "-n",
    "--latest",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Number of past events to print.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow until Ctrl-C.")
@any_node_option
@json_option
def events(latest: int, follow: bool, node: str | None, as_json: bool) -> None:
    """Print events of jobs, tasks and links on this node, newest last.

    A node remembers the last 2000 events since it started. Job events are on disk.
    """
    request = EventsRequest(latest=latest, follow=follow)
    with api.connect(node) as client:
        for event in client.events(request):
            if as_json:
                echo_json(event_fields(event))
                continue
            clock = time.strftime("%H:%M:%S", time.localtime(event.at_s))
            echo(f"{clock}  {event.what:<9}  {event.text}")
