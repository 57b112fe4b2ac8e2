"""`shoal server`: a node that lends nothing, as in the first scheduler."""

from __future__ import annotations

import click

from shoal.api import whereabouts
from shoal.cli.options import talk
from shoal.cli.settings import default_of
from shoal.cli.up import up
from shoal.runtime.home import Home


@click.command()
@click.option(
    "--port",
    type=int,
    default=default_of("port", 50_051),
    help="Where clients call; 50051 if nothing is set.",
)
@click.option(
    "--policy",
    default=default_of("policy", "balanced"),
    help="How workers are ranked; balanced if nothing is set.",
)
@click.option(
    "--listen",
    default=default_of("listen", ""),
    metavar="HOST:PORT",
    help="Where workers reach it; else as the last time, or on loopback.",
)
@click.option(
    "--api",
    default=default_of("api", ""),
    metavar="HOST:PORT",
    help="Where clients on other machines call, by TLS; else they cannot.",
)
@click.pass_context
def server(ctx: click.Context, port: int, policy: str, listen: str, api: str) -> None:
    """Run a scheduler: `shoal up` that lends nothing of this machine."""
    if policy:  # One message is enough, if it is not there.
        from shoal.policy.registry import Registry  # noqa: PLC0415 - Slow to import.

        Registry().get(policy)
    if port and whereabouts.running(Home.default()) is None:  # Else it is refused.
        talk(f"workers join by: shoal worker --scheduler localhost:{port}")
    ctx.invoke(up, no_worker=True, port=port, policy=policy, listen=listen, api=api)
