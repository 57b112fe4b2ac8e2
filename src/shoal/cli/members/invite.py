"""`shoal invite`: create an invitation to join the shoal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shoal.api.client import client as api
from shoal.cli.display.printing import echo_json
from shoal.cli.options import json_option, node_option, quiet_option, talk
from shoal.cli.terminal import echo
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import InviteRequest

ROLES = ("member", "worker", "submit", "admin")


@click.command()
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True)
@click.option(
    "--uses",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many machines can use it.",
)
@click.option("--ttl", default="1h", show_default=True, help="How long it is valid.")
@click.option(
    "--quota",
    default="",
    metavar="gpus=4,cpus=8",
    help="Most that the new member can use at one time.",
)
@click.option(
    "--owner",
    default="",
    metavar="NAME",
    help="Owner whose quota it counts against; by default each node has its own.",
)
@click.option(
    "--mine",
    is_flag=True,
    help="For another machine of yours: your nodes can show each other's jobs.",
)
@click.option("--qr", is_flag=True, help="Also show it as a QR code.")
@node_option
@json_option
@quiet_option
def invite(
    qr: bool,
    node: str | None,
    as_json: bool,
    quiet: bool,
    **terms: Any,  # noqa: ANN401 - What the options above say.
) -> None:
    """Print a command that lets another machine join this shoal.

    Members can run code on each other's machines: invite people you trust.
    """
    role, uses, ttl = terms["role"], terms["uses"], terms["ttl"]
    request = _request(**terms)
    with api.connect(node) as client:
        reply = client.invite(request)
    if as_json:
        fields = {"invitation": reply.text, "shoal": reply.shoal, "role": role}
        code = {"qr": _rows(reply.text)} if qr else {}
        echo_json({**fields, "addresses": list(reply.addresses), "ttl": ttl, **code})
        return
    echo(reply.text if quiet else f"shoal join {reply.text}")
    holds = "once" if uses == 1 else f"{uses} times"
    talk(f"run that on the other machine: it works {holds}, for {ttl}", quiet=quiet)
    if reply.only_here:
        why = "because the node listens on loopback"
        talk(f"note: it works only on this machine, {why};", quiet=quiet)
        opens = "shoal down; shoal up --listen 0.0.0.0:4001 opens it to others"
        talk(f"      {opens}", quiet=quiet)
    if qr:
        from shoal.cli.display.qr import show  # noqa: PLC0415 - Few ask for it.

        show(reply.text)


def _request(
    *, role: str, uses: int, ttl: str, quota: str, owner: str, mine: bool
) -> InviteRequest:
    from shoal.api.shoal_pb2 import InviteRequest  # noqa: PLC0415 - Slow to import.
    from shoal.model.units import parse_duration  # noqa: PLC0415

    request = InviteRequest(role=role, uses=uses, ttl_s=parse_duration(ttl))
    _read_owner(owner, mine=mine, request=request)
    _read_quota(quota, request)
    return request


def _rows(text: str) -> list[str]:
    """Return the QR code for programs that draw it themselves; 1 is dark."""
    from shoal.cli.display.qr import modules  # noqa: PLC0415 - Few ask for it.

    return ["".join(map(str, row)) for row in modules(text)]


def _read_owner(owner: str, *, mine: bool, request: InviteRequest) -> None:
    if mine and owner:
        raise UsageError(
            "--mine and --owner contradict each other",
            because="a node has one owner",
            hint="use one of them",
        )
    request.owner, request.mine = owner, mine


def _read_quota(text: str, request: InviteRequest) -> None:
    """Parse `gpus=4,cpus=8` into a request; either may be left out."""
    from shoal.model.units import parse_whole  # noqa: PLC0415 - As above.

    for part in filter(None, text.split(",")):
        name, _, amount = part.partition("=")
        match name.strip():
            case "gpus":
                request.quota_gpus = parse_whole(amount)
            case "cpus":
                request.quota_cpu_milli = 1_000 * parse_whole(amount)
            case _:
                raise UsageError(
                    f"'{part}' is not a quota",
                    because="quotas exist for gpus and cpus",
                    hint="write it like --quota gpus=4,cpus=8",
                )
