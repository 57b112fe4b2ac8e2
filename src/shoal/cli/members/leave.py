"""`shoal leave`: leave the shoal for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from shoal.api import node_file
from shoal.api.client.client import client_of
from shoal.cli.display.printing import echo_json
from shoal.cli.nodes.down import stop
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.errors import NotFoundError, UsageError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from shoal.api.node_file import NodeFile

REASON = "this node left its shoal"


@click.command()
@click.option("--grace", default="0s", help="How long tasks may keep running: 30s, 5m.")
@click.option(
    "--destroy", is_flag=True, help="Delete the grant, instead of keeping a copy."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@quiet_option
def leave(grace: str, destroy: bool, yes: bool, as_json: bool, quiet: bool) -> None:
    """Leave the shoal for good: hand tasks back, stop the node, give up its grant.

    Tasks that run here continue elsewhere. Jobs that were submitted here go to other
    nodes of yours if none of their tasks runs; others that have not ended are
    cancelled. Afterwards `shoal join` joins another shoal, or this one with a new
    invitation. The grant stays valid until it expires: a member who must not
    come back is revoked by an admin.
    """
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.
    from shoal.runtime.membership import shoal_membership  # noqa: PLC0415

    grace_s = parse_duration(grace)
    home = Home.default()
    known = shoal_membership.load(home)
    if known is None:
        raise NotFoundError(
            "this node belongs to no shoal",
            because=f"there is no {home.membership}",
            hint="`shoal join INVITATION` joins one, `shoal up` begins one",
        )
    found = node_file.running(home)
    active = [] if found is None else _active(found)
    if not yes:
        holds_root = home.root_key.exists()
        _ask(known.shoal, len(active), holds_root=holds_root, quiet=as_json or quiet)
    cancelled: list[str] = []
    if found is not None:
        is_quiet = quiet or as_json
        cancelled = [*stop(home, found, grace_s, REASON, quiet=is_quiet).cancelled]
    kept = home.membership.with_suffix(".left.json")
    if destroy:
        home.membership.unlink()
    else:
        home.membership.replace(kept)
    if as_json:
        fields = {"shoal": known.shoal, "cancelled": cancelled}
        echo_json({**fields, "kept": "" if destroy else str(kept)})
        return
    talk(f'left the shoal "{known.shoal}"', quiet=quiet)
    if gone := [job for job in active if job not in cancelled]:
        talk(f"other nodes of yours have {', '.join(gone)}", quiet=quiet)
    if not destroy:
        talk(f"its grant is kept in {kept}", quiet=quiet)
    suggest("shoal join INVITATION", "shoal up", quiet=quiet)


def _active(found: NodeFile) -> list[str]:
    with client_of(found) as client:
        return [job.id for job in client.jobs(active_only=True).jobs]


def _ask(shoal: str, jobs: int, *, holds_root: bool, quiet: bool) -> None:
    if jobs:
        have = "1 job has" if jobs == 1 else f"{jobs} jobs have"
        talk(f"{have} not ended: what no other node takes is cancelled", quiet=quiet)
    if holds_root:
        text = f'the root key of "{shoal}" stays in this home: others may still need it'
        talk(text, quiet=quiet)
    if not sys.stdin.isatty():
        raise UsageError(
            f'this node would leave the shoal "{shoal}"',
            because="nobody is there to ask",
            hint="add --yes",
        )
    if not click.confirm(f'leave the shoal "{shoal}" for good?', err=True):
        raise click.Abort
