"""Filters of jobs on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shoal.api import shoal_pb2 as pb
from shoal.api.documents import state_of
from shoal.errors import UsageError

if TYPE_CHECKING:
    import click

STATES: Final[dict[str, Any]] = {
    state_of(number): number for number in pb.State.values() if number
}


def read_states(
    ctx: click.Context, _param: click.Parameter, text: str | None
) -> list[pb.State]:
    """Read names of states between commas."""
    names = [] if text is None or ctx.resilient_parsing else text.split(",")
    for name in names:
        if name.strip().lower() not in STATES:
            raise UsageError(
                f"'{name}' is no state of a job",
                because=f"the states are {', '.join(STATES)}",
                hint="write it like --state failed,running",
            )
    return [STATES[name.strip().lower()] for name in names]
