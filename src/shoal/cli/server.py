"""`shoal server`: a node that lends nothing, as in the first scheduler."""

from __future__ import annotations

import click

from shoal.cli.options import talk
from shoal.cli.up import up


@click.command()
@click.option("--port", default=50_051, show_default=True, help="Where clients call.")
@click.option("--policy", default="balanced", show_default=True, help="Ranks workers.")
@click.option(
    "--listen",
    default="",
    metavar="HOST:PORT",
    help="Where workers reach it; else as the last time, or on loopback.",
)
@click.pass_context
def server(ctx: click.Context, port: int, policy: str, listen: str) -> None:
    """Run a scheduler: `shoal up` that lends nothing of this machine."""
    talk(f"workers join by: shoal worker --scheduler localhost:{port}")
    ctx.invoke(up, no_worker=True, port=port, policy=policy, listen=listen)
