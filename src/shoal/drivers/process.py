"""The driver of processes: an argv, never a shell, with a warden over each attempt.

The sandbox is on wherever bubblewrap works; `not_isolated` says what remains open.
Memory has no rlimit: RLIMIT_AS would count the address space that CUDA only reserves,
and RLIMIT_DATA is per process and counts stacks that nobody touches. A cgroup
limits it where one is delegated; otherwise the warden looks twice a second and kills
what is over its limit, with the numbers as the reason.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.drivers import Promises, cgroup, environment, internet, leftovers
from shoal.drivers import sandbox as boxes
from shoal.drivers.cgroup import Cgroups
from shoal.drivers.cpus import Cpus, as_list
from shoal.drivers.fields import FrameError, encoded
from shoal.drivers.task_socket import PATH_BYTES_MAX
from shoal.drivers.warden_frames import Start
from shoal.drivers.wardens import End, Warden, Wardens
from shoal.drivers.workdirs import Workdirs, hand_over
from shoal.errors import UsageError
from shoal.model.bounds import TEXT_LENGTH_MAX
from shoal.model.texts import cleaned
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.drivers import Order, Stream, Watcher
    from shoal.model.ids import Attempt

SOCKET_NAME_BYTES: Final = 16
ROOMS_KEPT: Final = 256
MEMORY_UNBOOKED_PERCENT: Final = 50
"""What a task of another owner may use of the memory if it has booked none."""

CPU_MILLI_UNBOOKED: Final = 1_000
KEPT_FREE_MAX: Final = 10 << 30
"""Most of a disk that is left to its owner; a twentieth of it if that is less."""

DISK_LEAST: Final = 64 << 20


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How tasks run on this worker.

    `cpus` are those that it lends; none means all that this process may use.
    `readable` are folders that sandboxed tasks may read beyond those of the system,
    such as an installation of Python. `device_files` are the device files by id.
    """

    sandbox: bool = True
    cgroups: bool = True
    cpus: tuple[int, ...] = ()
    path: str = environment.PATH_DEFAULT
    readable: tuple[str, ...] = ()
    device_files: dict[str, tuple[str, ...]] = {}
    processes_max: int = boxes.PROCESSES_MAX
    warm: int = 1  # wardens that are started ahead


class _Running(msgspec.Struct):
    """An attempt between its order and its end."""

    stop_grace_s: float | None = None  # once it was told to stop
    warden: Warden | None = None


@final
class ProcessDriver:
    """Runs tasks as processes of this machine."""

    name = "process"

    def __init__(self, root: Path, settings: Settings | None = None) -> None:
        """Keep everything below `root`, which no other worker uses."""
        self.root = root.absolute()
        self.settings = settings or Settings()
        self.leftovers = 0  # processes of earlier lives that `open` had to kill
        self.mark = leftovers.worker_mark(self.root)
        self.sockets = self.root / "sockets"  # nobody else can enter it
        self._workdirs = Workdirs(self.root)
        self._cpus = Cpus(self.settings.cpus or sorted(os.sched_getaffinity(0)))
        self._running: dict[Attempt, _Running] = {}
        self._sandbox: boxes.Sandbox | None = None
        self._cgroups: Cgroups | None = None
        self._internet: internet.Internet | str = "it was not looked for"
        self._resolver = ""
        self._limited: dict[int, cgroup.Limits] = {}  # of the group of each slot
        self._said: tuple[str, ...] = ()
        self._promises = Promises(confined="it is not open")
        self._wardens: Wardens | None = None
        self._elsewhere: tempfile.TemporaryDirectory[str] | None = None

    @property
    def not_isolated(self) -> tuple[str, ...]:
        """What a task here can reach or use up that it should not, in sentences."""
        return self._said

    @property
    def promises(self) -> Promises:
        """What it promises to the owner of the machine, known once it is open."""
        return self._promises

    @property
    def sandboxed(self) -> bool:
        """Whether tasks run in a sandbox."""
        return self._sandbox is not None

    async def open(self) -> None:
        """Kill what is left of earlier lives, find out what works here, warm up."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.leftovers = await asyncio.to_thread(leftovers.clear, self.root)
        await asyncio.to_thread(self._workdirs.trim)
        found: boxes.Sandbox | str = "the sandbox is switched off"
        if self.settings.sandbox:
            most = self.settings.processes_max
            found = await asyncio.to_thread(boxes.find, self.root, processes_max=most)
        self._sandbox = None if isinstance(found, str) else found
        cgroups: Cgroups | str = "cgroups are switched off"
        if self.settings.cgroups:
            cgroups = await asyncio.to_thread(cgroup.find, self.mark)
        self._cgroups = None if isinstance(cgroups, str) else cgroups
        self._said = _statement(found, cgroups)
        self._internet = internet.find()
        if isinstance(found, str) or not found.stays:
            self._internet = "it takes a sandbox that stays"
        else:
            self._resolver = str(internet.write_resolver(self.root))
        why = self._internet if isinstance(self._internet, str) else ""
        self._promises = _promises(found, cgroups, why)
        self.sockets = self._socket_folder()
        self._wardens = Wardens(self.root, self.sockets, self.mark)
        await self._wardens.warm(self.settings.warm)

    def prepare(self, attempt: Attempt) -> Path:
        """Make the empty work directory of an attempt, for the host to fill."""
        return self._workdirs.make(attempt)

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the file with the end of what an attempt wrote, if it wrote."""
        return self._workdirs.kept(attempt, stream)

    async def run(self, order: Order, watcher: Watcher) -> Outcome:
        """Run an attempt to its end; see `Driver.run`."""
        assert self._wardens is not None, "open the driver first"
        if order.attempt in self._running:
            return Outcome("not-started", reason="the attempt runs already")
        if reason := unfit(order):
            return Outcome("not-started", reason=reason)
        running = self._running[order.attempt] = _Running()
        cpus = self._cpus.take(order.allocation.cpu_milli)
        try:
            running.warden = await self._wardens.get(as_list(cpus))
            try:
                end = await self._run(order, running, cpus, watcher)
            finally:
                await self._give_back(order, running.warden)
        except (OSError, UsageError, FrameError) as error:
            return Outcome("not-started", reason=cannot(error))
        finally:
            self._cpus.give(cpus, order.allocation.cpu_milli)
            del self._running[order.attempt]
        return outcome_of(end, stopped=running.stop_grace_s is not None)

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Send SIGTERM now and SIGKILL after the grace; a repeat may shorten it."""
        running = self._running.get(attempt)
        if running is None:
            return
        before = running.stop_grace_s
        running.stop_grace_s = grace_s if before is None else min(before, grace_s)
        if running.warden is not None:
            running.warden.stop(grace_s)

    async def clear(self, attempt: Attempt) -> None:
        """Kill whatever is left of an attempt whose run raised; raise if it stays."""
        await asyncio.to_thread(leftovers.kill_until_gone, self.mark, str(attempt))

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and the kept output of ended attempts."""
        ended = [attempt for attempt in attempts if attempt not in self._running]
        while await asyncio.to_thread(self._workdirs.remove, ended):
            pass

    async def close(self) -> None:
        """End the wardens; all runs have ended or were cancelled before."""
        if self._wardens is not None:
            await self._wardens.close()
            self._wardens = None
        if self._cgroups is not None:
            self._cgroups.close()
        if self._elsewhere is not None:
            self._elsewhere.cleanup()

    # One run.

    async def _run(
        self,
        order: Order,
        running: _Running,
        cpus: tuple[int, ...],
        watcher: Watcher,
    ) -> End:
        used = running.warden
        assert used is not None
        name = self._workdirs.name(order.attempt)
        directory = order.directory or f"{name}.work"
        if running.stop_grace_s is not None:
            return End("not-started", reason="stopped before it started")
        if order.reach == "internet" and isinstance(self._internet, str):
            why = f"no internet without the local network: {self._internet}"
            return End("not-started", reason=why)
        if self._sandbox is not None and (reason := self._missing(order, directory)):
            return End("not-started", reason=reason)
        uid = None if self._sandbox is None else self._sandbox.uid_of(used.slot)
        if order.directory is not None and uid is not None:
            await asyncio.to_thread(hand_over, order.directory, uid)
        killed_before = self._limit(used, order)
        start = self._start(order, used, name, cpus)
        calls_before = used.reports.counts["calls"]
        used.reports.begin(watcher.progressed, order.calls)
        try:
            end = await used.run(start, watcher.wrote)
        finally:
            used.reports.end()
        # Whatever a task asked for may still be done with its folder.
        is_left = end.as_new and used.reports.counts["calls"] == calls_before
        free = is_left and not order.task.work.outputs and self._sandbox is None
        used.spare = start.make if free else ""
        groups = self._cgroups
        if end.code and groups and groups.out_of_memory(used.slot) > killed_before:
            limit = limits_of(order).memory_bytes >> 20
            reason = (
                f"killed: it used more memory than it may, its limit is {limit} MiB"
            )
            end = msgspec.structs.replace(end, reason=reason)
        return end

    async def _give_back(self, order: Order, used: Warden) -> None:
        """Return a warden; if it was killed, kill first what it watched over."""
        assert self._wardens is not None
        try:
            if used.lost:
                attempt, slot = str(order.attempt), used.slot
                await asyncio.to_thread(
                    leftovers.kill_until_gone, self.mark, attempt, slot=slot
                )
        finally:
            await self._wardens.put(used)

    def _start(
        self, order: Order, used: Warden, name: str, cpus: tuple[int, ...]
    ) -> Start:
        box = self._sandbox
        work = order.task.work
        directory = str(order.directory or f"{name}.work")
        env = environment.variables(
            order,
            mark=self.mark,
            home=directory if box is None else boxes.WORK,
            socket=str(used.reports.path) if box is None else boxes.SOCKET,
            path=self.settings.path,
            renumbered=box is not None,
        )
        most_disk, kept = self._disk_of(order)
        is_bound = order.foreign or order.allocation.disk_bytes > 0
        scratch = order.allocation.memory_bytes or boxes.SCRATCH_BYTES_DEFAULT
        start = Start(
            kept=name,
            make="" if order.directory else directory,
            spare=used.spare,
            owner=-1,
            directory=directory,
            cpus=as_list(cpus),
            memory_bytes=0 if self._cgroups else limits_of(order).memory_bytes,
            boxed=box is not None,
            scratch_bytes=scratch,
            processes_max=0 if box is None else box.processes_most,
            env=list(map("=".join, env.items())),
            setup=work.setup,
            shown=(),
            room=(),
            secrets=tuple(order.secrets.values()),
            folder=directory,
            disk_bytes=most_disk,
            keep_bytes=kept,
            file_bytes=max(most_disk, scratch) if is_bound else 0,
            doors=self._cgroups.doors(used.slot) if self._cgroups else (),
            home=self._cgroups.home if self._cgroups else (),
            argv=work.argv,
        )
        return start if box is None else self._boxed(box, start, order, used)

    def _boxed(
        self, box: boxes.Sandbox, start: Start, order: Order, used: Warden
    ) -> Start:
        uid = box.uid_of(used.slot)
        if uid is not None:
            os.chown(used.reports.path, uid, uid)
        shares = order.allocation.shares
        files = [self.settings.device_files.get(share.device, ()) for share in shares]
        inside = boxes.Box(
            directory=str(self.root) if box.stays else start.directory,
            socket=str(used.reports.path),
            devices=tuple(dict.fromkeys(path for paths in files for path in paths)),
            readable=self.settings.readable,
            network=order.reach != "none",
            resolver=self._resolver if order.reach == "internet" else "",
            scratch_bytes=0 if box.stays else start.scratch_bytes,
            slot=used.slot,
        )
        start = start._replace(owner=-1 if uid is None else uid)
        if box.stays:
            shown = boxes.hidden(self.settings.readable)
            start = start._replace(shown=shown, room=_room(box, inside))
            return self._connected(start) if order.reach == "internet" else start
        return start._replace(
            directory="/",
            setup=box.argv(inside, start.setup) if start.setup else (),
            argv=box.argv(inside, start.argv),
        )

    def _connected(self, start: Start) -> Start:
        """Give a task the internet alone."""
        assert not isinstance(self._internet, str), "asked before it starts"
        room = self._internet.room(tuple(start.room))
        return start._replace(room=room, uplink=self._internet.uplink)

    def _missing(self, order: Order, directory: str | Path) -> str | None:
        work = order.task.work
        path = work.env.get("PATH", self.settings.path)
        readable = self.settings.readable
        programs = [argv[0] for argv in (work.setup, work.argv) if argv]
        if work.setup:
            programs = programs[:1]  # It may make the other.
        for name in programs:
            if why := boxes.program_missing(name, path, Path(directory), readable):
                return why
        return None

    def _limit(self, used: Warden, order: Order) -> int:
        """Set the limits of a cgroup; return how often memory has run out in it."""
        if self._cgroups is None:
            return 0
        limits = limits_of(order, self.settings.processes_max)
        if self._limited.get(used.slot) != limits:  # Mostly, all tasks are alike.
            self._limited.pop(used.slot, None)
            self._cgroups.doors(used.slot)
            self._cgroups.limit(used.slot, limits)
            self._limited[used.slot] = limits
        return self._cgroups.out_of_memory(used.slot)

    def _disk_of(self, order: Order) -> tuple[int, int]:
        """Return how large a work directory may grow, and what stays free."""
        found = os.statvfs(self.root)
        kept = min(found.f_blocks * found.f_frsize // 20, KEPT_FREE_MAX)
        free = max(DISK_LEAST, found.f_bavail * found.f_frsize - kept)
        unbooked = free // 2 if order.foreign else free
        return order.allocation.disk_bytes or unbooked, kept

    def _socket_folder(self) -> Path:
        """Return where sockets are: below the root, unless that path is too long."""
        folder = self.sockets
        if len(os.fsencode(folder)) + SOCKET_NAME_BYTES <= PATH_BYTES_MAX:
            folder.mkdir(mode=0o700, exist_ok=True)
            return folder
        self._elsewhere = tempfile.TemporaryDirectory(prefix="shoal-")
        return Path(self._elsewhere.name)


@functools.lru_cache(ROOMS_KEPT)
def _room(box: boxes.Sandbox, inside: boxes.Box) -> tuple[str, ...]:
    """Return the command for a sandbox; to make it takes as long as to run a task."""
    return tuple(box.room(inside))


def unfit(order: Order) -> str | None:
    """Say why an order cannot be carried out on any machine."""
    work = order.task.work
    if not work.argv:
        return "there is no program to run"
    names = (*work.env, *work.secrets)
    if any(not name or "=" in name or "\n" in name for name in names):
        return "the name of a variable is empty or contains '=' or a line break"
    if lacking := [name for name in work.secrets if name not in order.secrets]:
        return f"the worker was not given secret '{lacking[0]}'"
    if order.addresses and order.task.index >= len(order.addresses):
        return f"rank {order.task.index} of a gang of {len(order.addresses)}"
    return _unfit_text(order)


def _unfit_text(order: Order) -> str | None:
    """Say which text no argument, variable or path can hold, and so nobody is sent."""
    task, work = order.task, order.task.work
    devices = [share.device for share in order.allocation.shares]
    texts: dict[str, Iterable[str]] = {
        "an argument": (*work.argv, *work.setup),
        "the name of a variable": (*work.env, *work.secrets),
        "a variable": work.env.values(),
        "a secret": order.secrets.values(),
        "the id of a task": (task.id, task.job, task.group),
        "the id of an attempt": (str(order.attempt),),
        "the name of a recipe": (work.recipe,),
        "the path of a checkpoint": (order.checkpoint,),
        "the address of a node": order.addresses,
        "the id of a device": devices,
    }
    for what, found in texts.items():
        for text in found:
            try:
                encoded(text)
            except FrameError as error:
                return f"{what} cannot be used: {error}"
    return None


def outcome_of(end: End, *, stopped: bool) -> Outcome:
    """Return the end in the words of the protocol."""
    reason = cut(end.reason)
    match end.kind:
        case "not-started":
            return Outcome("not-started", reason=reason)
        case "exited":
            return Outcome(
                "cancelled" if stopped else "exited", exit_code=end.code, reason=reason
            )
        case _:
            return Outcome("lost", reason=reason)


def cannot(error: Exception) -> str:
    """Say why this worker cannot run a task, without the paths of its owner."""
    why = error.strerror if isinstance(error, OSError) else None
    return cut(f"the worker cannot: {why or error}")


def cut(text: str) -> str:
    """Make a text fit for a message; a file name may be no UTF-8."""
    return cleaned(text[:TEXT_LENGTH_MAX])


def limits_of(order: Order, processes: int = boxes.PROCESSES_MAX) -> cgroup.Limits:
    """Return what a task may use: what it has booked.

    One of another owner that has booked no memory or CPU does not get all there is.
    """
    allocation = order.allocation
    memory_bytes, cpu_milli = allocation.memory_bytes, allocation.cpu_milli
    if order.foreign:
        memory_bytes = memory_bytes or _most_memory()
        cpu_milli = cpu_milli or CPU_MILLI_UNBOOKED
    return cgroup.Limits(memory_bytes, cpu_milli, processes)


@functools.cache
def _most_memory() -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total * MEMORY_UNBOOKED_PERCENT // 100


def _promises(
    found: boxes.Sandbox | str, cgroups: Cgroups | str, no_internet: str
) -> Promises:
    """Say what holds here."""
    confined = found if isinstance(found, str) else ""
    groups = cgroups if isinstance(cgroups, str) else ""
    counted = not isinstance(found, str) and bool(found.processes_most)
    return Promises(
        confined=confined,
        memory=groups and f"it is looked at twice a second: {groups}",
        cpu=groups and f"a task is bound to CPUs, but not to a share of one: {groups}",
        processes="" if counted else groups,
        disk="a work directory is looked at twice a second, not limited",
        internet=no_internet,
    )


def _statement(found: boxes.Sandbox | str, cgroups: Cgroups | str) -> tuple[str, ...]:
    """Say what tasks can reach or use up that they should not."""
    said = ["the size of a work directory is looked at twice a second"]
    if isinstance(found, str):
        said += [
            f"no sandbox: {found}",
            "a task can read the files and the key of the node's user",
            "a task can signal the processes of the node's user",
            "a task can use the network",
        ]
    else:
        said += found.not_isolated
    if isinstance(cgroups, str):
        said.append(f"memory is looked at twice a second, not limited: {cgroups}")
        if isinstance(found, str):
            said.append("the number of processes of a task has no limit: no cgroup")
    return tuple(said)
