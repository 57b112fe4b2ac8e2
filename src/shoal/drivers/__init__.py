"""Run tasks on devices: the interface between a worker and its drivers.

A driver receives a `RunOrder` and runs it to its end. It knows nothing of peers or
leases. However a run ends, by return, exception or cancellation, no process of it
survives, so its devices are free. See `docs/drivers.md` for the whole picture.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from shoal.model.ids import Attempt
from shoal.model.job import Task
from shoal.model.kinds import TaskNetwork
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from shoal.drivers.supervisor.visit_line import VisitLine

Stream = Literal["stdout", "stderr"]


Calls = Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]
"""Answers a task's calls to its worker; never raises."""

OpenApi = Callable[[socket.socket], None]
"""Takes over a connection by which a task calls the API of its shoal; never raises."""


class TaskMount(msgspec.Struct, frozen=True, kw_only=True):
    """A folder or file of this machine that a task sees at a place of its own.

    Without a sandbox nothing is mounted, and the task uses the source. `variable`
    tells the task where it is; `programs` puts its folder `bin` first in PATH, and
    `module` lets Python import it.
    """

    source: str
    place: str
    writable: bool = False
    ours: bool = False  # made here: it is given to the user that the task runs as
    variable: str = ""
    programs: bool = False
    module: bool = False
    bytes_max: int = 0  # a task that fills it beyond this is killed; 0: no limit

    @property
    def is_in_place(self) -> bool:
        """Whether a task reads it where it lies."""
        return self.source == self.place and not self.writable

    def seen_at(self, *, mounted: bool) -> str:
        """Return where a task finds it."""
        return self.place if mounted else self.source


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to run, with everything the driver needs.

    `directory` is the work directory if the host filled one made by `Driver.prepare`;
    otherwise the attempt starts in an empty one. `addresses` lists the nodes of a
    gang by rank. `secrets` holds a value for each secret that the work names.
    `checkpoint` is the path, below the work directory, of an earlier attempt's
    checkpoint. `foreign` is set if the job's owner does not own this node.
    """

    attempt: Attempt
    task: Task
    allocation: Allocation = Allocation()
    directory: Path | None = None
    addresses: tuple[str, ...] = ()
    secrets: dict[str, str] = {}
    checkpoint: str = ""
    calls: Calls | None = None
    open_api: OpenApi | None = None
    foreign: bool = False
    mounts: tuple[TaskMount, ...] = ()
    user: int = 0  # tasks with the same number can write each other's files; 0: none
    counted: Path | None = None  # whose size is limited; None: the work directory
    network: TaskNetwork | None = None  # None: "all" if the work asks for a network

    @property
    def reach(self) -> TaskNetwork:
        """The network access of the task."""
        if self.network is not None:
            return self.network
        return "all" if self.task.work.network else "none"


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver guarantees to the owner of the machine.

    Each field says why its guarantee is missing or weaker; empty means it holds.
    """

    confined: str = ""  # a task sees only its own part of the machine
    memory: str = ""  # the kernel limits memory, including shared memory
    cpu: str = ""  # the kernel limits CPU time to the booked share
    processes: str = ""  # the kernel limits the number of processes
    disk: str = ""  # the kernel limits the size of the work directory
    internet: str = ""  # internet access can exclude the lender's networks

    @property
    def unlimited(self) -> str:
        """Why the kernel does not limit memory, CPU or processes; empty if it does."""
        return self.memory or self.cpu or self.processes

    @property
    def weaker(self) -> tuple[str, ...]:
        """The guarantees that do not fully hold, each as `name: reason`."""
        said = msgspec.structs.asdict(self)
        return tuple(f"{name}: {why}" for name, why in said.items() if why)


class Watcher(Protocol):
    """Receives the output and progress of a run."""

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Receive a piece of output; the task is throttled until this returns."""
        ...

    def progressed(
        self,
        fraction: float | None,
        metrics: dict[str, float],
        lines: tuple[bytes, ...],
    ) -> None:
        """Receive the latest metrics, already clamped to the limits of a message.

        `lines` has every report that they are made of (`model.metric_lines`).
        """
        ...


class Driver(Protocol):
    """Runs tasks of one kind."""

    name: str

    @property
    def promises(self) -> Promises:
        """The driver's guarantees to the owner of the machine; valid after `open`."""
        ...

    async def open(self) -> None:
        """Get ready; first kill processes left by an earlier run of the node."""
        ...

    def prepare(self, attempt: Attempt) -> Path:
        """Make an empty work directory for the host to fill."""
        ...

    async def run(self, order: RunOrder, watcher: Watcher) -> Outcome:
        """Run an attempt to its end, reporting to `watcher`.

        Cancelling this kills the task at once. However this ends, by return,
        exception or cancellation, no process of the task survives.
        """
        ...

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Send SIGTERM now and SIGKILL after the grace; a repeat may shorten it.

        Does nothing if the attempt is not running.
        """
        ...

    def visits(self, attempt: Attempt) -> VisitLine:
        """Return what lets programs and connections join a running attempt.

        They run as the task does, with its limits, and end with it. Raises
        `ShoalError` if it does not run, or if this driver cannot do that.
        """
        ...

    async def clear(self, attempt: Attempt) -> None:
        """Kill all processes of an attempt whose run raised; raise if any survives."""
        ...

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and kept output of ended attempts."""
        ...

    async def close(self) -> None:
        """Kill and reap all remaining processes, and release what `open` acquired."""
        ...
