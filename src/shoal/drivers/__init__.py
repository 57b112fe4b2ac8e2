"""Run tasks on devices: the outside of a worker.

A driver is told an order and runs it to its end. It knows nothing of peers or leases.
However a run ends, by return, exception or cancellation, no process of it is alive
afterwards, so its devices are free. `docs/drivers.md` has the whole picture.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from shoal.model.ids import Attempt
from shoal.model.job import Task
from shoal.model.kinds import TaskNetwork
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome

Stream = Literal["stdout", "stderr"]


Calls = Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]
"""Answers what a task asks of its worker. It never raises."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to run, and all that the driver must know about it.

    `directory` is the work directory if the host has filled one (`Driver.prepare`
    made it); otherwise the attempt begins in an empty one. `addresses` are those of
    the nodes of a gang, by rank. `secrets` holds a value for each name in the work.
    `checkpoint` is where, below the work directory, an earlier attempt left off.
    `foreign`: it runs in the name of somebody else than the owner of this node.
    """

    attempt: Attempt
    task: Task
    allocation: Allocation = Allocation()
    directory: Path | None = None
    addresses: tuple[str, ...] = ()
    secrets: dict[str, str] = {}
    checkpoint: str = ""
    calls: Calls | None = None
    foreign: bool = False
    network: TaskNetwork | None = None  # None: all, if its work asks for a network

    @property
    def reach(self) -> TaskNetwork:
        """What the task may reach."""
        if self.network is not None:
            return self.network
        return "all" if self.task.work.network else "none"


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver promises to the owner of the machine.

    A text says why a promise does not hold, or holds less; empty: it holds.
    """

    confined: str = ""  # a task sees nothing of the machine that is not its own
    memory: str = ""  # the kernel keeps it to its memory, shared memory included
    cpu: str = ""  # and to the CPU that it booked
    processes: str = ""  # and to a number of processes
    disk: str = ""  # and its work directory to a size
    internet: str = ""  # it can have the internet without the lender's networks

    @property
    def unlimited(self) -> str:
        """Why the kernel does not limit memory, CPU and processes; empty: it does."""
        return self.memory or self.cpu or self.processes

    @property
    def weaker(self) -> tuple[str, ...]:
        """All that does not hold in full, in sentences that begin with its name."""
        said = msgspec.structs.asdict(self)
        return tuple(f"{name}: {why}" for name, why in said.items() if why)


class Watcher(Protocol):
    """Whoever wants to know how a run goes."""

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Take a piece of output. While this waits, the task is slowed down."""
        ...

    def progressed(self, fraction: float | None, metrics: dict[str, float]) -> None:
        """Take the latest figures, already within the limits of a message."""
        ...


class Driver(Protocol):
    """Runs tasks of one kind."""

    name: str

    @property
    def not_isolated(self) -> tuple[str, ...]:
        """What a task here can reach or use up that it should not, in sentences."""
        ...

    @property
    def promises(self) -> Promises:
        """What it promises to the owner of the machine, known once it is open."""
        ...

    async def open(self) -> None:
        """Get ready; processes of an earlier life are gone when this returns."""
        ...

    def prepare(self, attempt: Attempt) -> Path:
        """Make the empty work directory of an attempt, for the host to fill."""
        ...

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the file with the end of what an attempt wrote, if it wrote."""
        ...

    async def run(self, order: Order, watcher: Watcher) -> Outcome:
        """Run an attempt to its end, and tell `watcher` on the way.

        Cancelling this kills the task at once. However this ends, by return,
        exception or cancellation, no process of the task is alive afterwards.
        """
        ...

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Send SIGTERM now and SIGKILL after the grace; a repeat may shorten it.

        What is not running is none of our business: it has ended, or never began.
        """
        ...

    async def clear(self, attempt: Attempt) -> None:
        """Kill whatever is left of an attempt whose run raised; raise if it stays."""
        ...

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and the kept output of ended attempts."""
        ...

    async def close(self) -> None:
        """Kill and reap whatever still runs, and free all that `open` took."""
        ...
