"""`shoal worker`: a node that works for a scheduler, as in the first scheduler."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import click

from shoal.api import whereabouts
from shoal.api.client import connect, is_here
from shoal.api.token_files import STDIN, token_in
from shoal.cli.options import checked_address, talk
from shoal.cli.settings import default_of
from shoal.cli.up import up
from shoal.errors import NotAllowedError, ShoalError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from shoal.api.client import Client
    from shoal.api.shoal_pb2 import NodeInfo

INVITATION_S: Final = 60.0
FILE: Final = "shoal.token_file"


def _note_file(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    """Keep where the token is, for when it is needed."""
    ctx.meta[FILE] = path


@click.command()
@click.option(
    "--scheduler",
    default="localhost:50051",
    show_default=True,
    callback=checked_address,
    metavar="HOST:PORT",
    help="Whose jobs to run.",
)
@click.option("--gpus", help="Declare GPUs by id, such as 0,1; else they are detected.")
@click.option("--models", default="", help="The model of each declared GPU.")
@click.option("--memories", default="", help="The MB of each declared GPU.")
@click.option(
    "--addr", default="localhost:0", show_default=True, help="Where others reach it."
)
@click.option(
    "--token-file",
    metavar="FILE",
    expose_value=False,
    callback=_note_file,
    help="Where the scheduler's token is; - is standard input. Not needed on its "
    "machine.",
)
@click.option(
    "--token", help="The token itself; others here see it, so better --token-file."
)
@click.option(
    "--sandbox/--no-sandbox", default=default_of("sandbox"), help="Confine tasks."
)
@click.pass_context
def worker(
    ctx: click.Context,
    scheduler: str,
    gpus: str | None,
    models: str,
    memories: str,
    addr: str,
    token: str | None,
    sandbox: bool,
) -> None:
    """Run a worker: it joins the shoal of a scheduler, and lends this machine.

    On the scheduler's own machine nothing else is needed. From another one, show the
    token of the scheduler, or join by `shoal invite` and `shoal join`.
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
    )


def _token(token: str | None, file: str | None) -> str | None:
    """Return the token that is meant; one on the command line is seen by others."""
    if file or token == STDIN:
        return token_in(file or STDIN)
    if token:
        talk("note: other users of this machine can see a token in the arguments of a ")
        talk("      command; --token-file FILE, or - for standard input, hides it")
    return token


def _home_for(info: NodeInfo) -> Home:
    """Return a home that no node uses: the user's own, or the first that is free."""
    own = Home.default()
    if os.environ.get("SHOAL_HOME") and str(own.path) != info.home:
        return own
    number = 1
    while whereabouts.running(home := Home(own.path / "workers" / f"{number}")):
        number += 1
    return home


def _belongs_to(home: Home, info: NodeInfo) -> bool:
    from shoal.runtime import membership  # noqa: PLC0415 - Slow to import.

    known = membership.load(home)
    if known is None:
        return False
    if any(info.name.id in address for address in known.gates):
        return True
    raise ShoalError(
        f"{home.path} belongs to another shoal",
        because=f'it has joined "{known.shoal}", and {info.name.petname} is not of it',
        hint="set SHOAL_HOME to another folder for this worker",
    )


def _join(home: Home, client: Client, scheduler: str) -> None:
    from shoal.api import shoal_pb2 as pb  # noqa: PLC0415 - Slow to import.
    from shoal.net.petname import petname  # noqa: PLC0415
    from shoal.runtime.joining import join_shoal  # noqa: PLC0415

    reply = client.invite(pb.InviteRequest(role="worker", uses=1, ttl_s=INVITATION_S))
    if reply.only_here and not is_here(scheduler):
        raise ShoalError(
            f"the scheduler at {scheduler} cannot be reached by other machines",
            because="its node listens on loopback only",
            hint="start it with `shoal server --listen 0.0.0.0:4001`",
        )
    belongs, inviter = asyncio.run(join_shoal(home, reply.text))
    talk(f'joined "{belongs.shoal}", let in by {petname(inviter)}')


def _lacking_token(scheduler: str, error: NotAllowedError) -> ShoalError:
    return NotAllowedError(
        f"the scheduler at {scheduler} does not know this worker",
        because=error.because,
        hint="--token-file with what `shoal token show` prints on the scheduler; "
        "or `shoal invite` there and `shoal join` here",
    )
