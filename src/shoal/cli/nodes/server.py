"""`shoal server`: a scheduler only, with the flags of the original scheduler."""

from __future__ import annotations

import click

from shoal.api import node_file
from shoal.cli.config.settings import default_of
from shoal.cli.nodes.up import api_option, listen_option, up
from shoal.cli.options import talk
from shoal.runtime.home import Home


@click.command()
@click.option(
    "--port",
    type=int,
    default=default_of("port", 50_051),
    help="Port for local clients; 50051 by default.",
)
@click.option(
    "--policy",
    default=default_of("policy", "balanced"),
    help="Placement policy; balanced by default.",
)
@listen_option
@api_option
@click.pass_context
def server(ctx: click.Context, port: int, policy: str, listen: str, api: str) -> None:
    """Start a scheduler: `shoal up` without a worker."""
    if policy:  # One message is enough, if it is not there.
        from shoal.policy.registry import Registry  # noqa: PLC0415 - Slow to import.

        Registry().get(policy)
    if port and node_file.running(Home.default()) is None:  # Else it is refused.
        talk(f"workers join with: shoal worker --scheduler localhost:{port}")
    ctx.invoke(up, no_worker=True, port=port, policy=policy, listen=listen, api=api)
