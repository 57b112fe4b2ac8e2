"""A few calls of trio, with types.

libp2p brings stubs that are older than trio's own types and hide them from pyright.
What suffers from that is called here, and nowhere else.
"""

# pyright: reportUnknownMemberType=false, reportCallIssue=false
# pyright: reportArgumentType=false

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
Args = TypeVarTuple("Args")


def start(
    nursery: trio.Nursery,
    work: Callable[[*Args], Awaitable[object]],
    *args: *Args,
) -> None:
    """Run `work` as a task of this nursery."""
    nursery.start_soon(work, *args)


def run(work: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Run a loop of trio in this thread until `work` is done."""
    return trio.run(work, *args)


async def in_thread(work: Callable[[], T]) -> T:
    """Run something that blocks in a thread of its own."""
    return await trio.to_thread.run_sync(work)


def soon(token: trio.lowlevel.TrioToken, work: Callable[[], object]) -> None:
    """Have the loop of this token call `work`, once for several calls of this."""
    token.run_sync_soon(work, idempotent=True)


def scope() -> trio.CancelScope:
    """Return a scope to cancel tasks by."""
    return trio.CancelScope()


def shielded(most_s: float = math.inf) -> trio.CancelScope:
    """Return a scope in which nothing is cancelled from outside, for so long."""
    return trio.CancelScope(shield=True, deadline=trio.current_time() + most_s)
