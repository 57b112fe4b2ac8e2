"""`shoal worker`: a worker, with the flags of the original scheduler."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import click

from shoal.api import node_file
from shoal.api.client.client import connect, is_here
from shoal.api.client.token_files import STDIN, token_in
from shoal.api.node_names import WORKER_LABEL
from shoal.cli.config.settings import default_of
from shoal.cli.nodes.up import gpu_options, sandbox_option, up
from shoal.cli.options import checked_address, talk
from shoal.errors import NotAllowedError, ShoalError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from shoal.api.client.client import Client
    from shoal.api.shoal_pb2 import NodeInfo

INVITATION_S: Final = 60.0
FILE: Final = "shoal.token_file"
_LABELS: Final = default_of("labels", ())


def _note_file(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    """Remember the token file until the token is needed."""
    ctx.meta[FILE] = path


@click.command()
@click.option(
    "--scheduler",
    default="localhost:50051",
    show_default=True,
    callback=checked_address,
    metavar="HOST:PORT",
    help="Scheduler to work for.",
)
@gpu_options
@click.option(
    "--worker",
    "name",
    metavar="NAME",
    help="Name of this worker, for `monitor --worker`.  [default: worker-1, ...]",
)
@click.option(
    "--addr", default="localhost:0", show_default=True, help="Address for other nodes."
)
@click.option(
    "--token-file",
    metavar="FILE",
    expose_value=False,
    callback=_note_file,
    help="File with the scheduler's token; - is standard input. Not needed on the "
    "scheduler's own machine.",
)
@click.option(
    "--token", help="The token itself; other users can see it, so prefer --token-file."
)
@sandbox_option
@click.pass_context
def worker(  # noqa: PLR0913, PLR0917 - one for each flag
    ctx: click.Context,
    scheduler: str,
    gpus: str | None,
    models: str,
    memories: str,
    name: str | None,
    addr: str,
    token: str | None,
    sandbox: bool,
) -> None:
    """Start a worker: join the shoal of a scheduler and lend this machine.

    On the scheduler's own machine nothing else is needed. On another machine, pass the
    scheduler's token, or join with `shoal invite` and `shoal join`.
    """
    if gpus is not None:
        from shoal.drivers.devices import declared_gpus  # noqa: PLC0415 - Slow.

        declared_gpus(
            gpus, models, memories
        )  # Join only if there is something to lend.
    shown = _token(token, ctx.meta.get(FILE))
    try:
        with connect(scheduler, token=shown) as client:
            info = client.info()
            home = _home_for(info)
            if not _belongs_to(home, info):
                _join(home, client, scheduler)
    except NotAllowedError as error:
        raise _lacking_token(scheduler, error) from None
    os.environ["SHOAL_HOME"] = str(home.path)
    ctx.invoke(
        up,
        listen=addr.replace("localhost:", "127.0.0.1:"),
        port=0,
        gpus=gpus,
        models=models,
        memories=memories,
        sandbox=sandbox,
        labels=(*_own_labels(), f"{WORKER_LABEL}={name or _numbered(home)}"),
    )


def _own_labels() -> tuple[str, ...]:
    """Return the labels that the settings give to nodes of this machine."""
    labels = _LABELS()
    return tuple(labels) if isinstance(labels, tuple | list) else ()


def _numbered(home: Home) -> str:
    """Return the name of a worker that was given none: by the number of its home."""
    number = home.path.name
    return f"worker-{number if number.isdecimal() else 1}"


def _token(token: str | None, file: str | None) -> str | None:
    """Return the token; warn about one on the command line."""
    if file or token == STDIN:
        return token_in(file or STDIN)
    if token:
        talk("note: other users of this machine can see a token in the arguments of a ")
        talk("      command; --token-file FILE, or - for standard input, hides it")
    return token


def _home_for(info: NodeInfo) -> Home:
    """Return an unused home: the user's own, or the first free one."""
    own = Home.default()
    if os.environ.get("SHOAL_HOME") and str(own.path) != info.home:
        return own
    number = 1
    while node_file.running(home := Home(own.path / "workers" / f"{number}")):
        number += 1
    return home


def _belongs_to(home: Home, info: NodeInfo) -> bool:
    from shoal.runtime.membership import shoal_membership  # noqa: PLC0415 - Slow to import.

    known = shoal_membership.load(home)
    if known is None:
        return False
    if any(info.name.id in address for address in known.gates):
        return True
    raise ShoalError(
        f"{home.path} belongs to another shoal",
        because=f'it is a member of "{known.shoal}", and {info.name.petname} is not',
        hint="set SHOAL_HOME to another folder for this worker",
    )


def _join(home: Home, client: Client, scheduler: str) -> None:
    from shoal.api import shoal_pb2 as pb  # noqa: PLC0415 - Slow to import.
    from shoal.net.identity.petname import petname  # noqa: PLC0415
    from shoal.runtime.admission.join_by_invitation import join_shoal  # noqa: PLC0415

    reply = client.invite(pb.InviteRequest(role="worker", uses=1, ttl_s=INVITATION_S))
    if reply.only_here and not is_here(scheduler):
        raise ShoalError(
            f"other machines cannot reach the scheduler at {scheduler}",
            because="its node listens on loopback only",
            hint="start it with `shoal server --listen 0.0.0.0:4001`",
        )
    belongs, inviter = asyncio.run(join_shoal(home, reply.text))
    talk(f'joined "{belongs.shoal}", let in by {petname(inviter)}')


def _lacking_token(scheduler: str, error: NotAllowedError) -> ShoalError:
    return NotAllowedError(
        f"the scheduler at {scheduler} does not know this worker",
        because=error.because,
        hint="pass the output of `shoal token show` there with --token-file; "
        "or run `shoal invite` there and `shoal join` here",
    )
