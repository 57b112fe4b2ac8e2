"""Run tasks as local processes, each attempt under a supervisor; never by a shell.

`open` kills leftovers, then finds out which sandbox, cgroups and internet access work
here. `run` takes a supervisor from the pool, sets the limits of its cgroup, sends it a
`StartAttempt` frame, passes output and metrics on, and returns the supervisor at the
end. Tasks are sandboxed wherever bubblewrap works; `not_isolated` lists the gaps.

Memory has no rlimit: RLIMIT_AS would count address space that CUDA only reserves, and
RLIMIT_DATA is per process and counts untouched stacks. A cgroup limits memory where one
is delegated; otherwise the supervisor checks twice a second and kills a task over its
limit, giving the numbers as the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec

from shoal.drivers import Promises, environment
from shoal.drivers.limits import cgroup
from shoal.drivers.limits.cgroup import Cgroups
from shoal.drivers.limits.cpus import Cpus, as_list
from shoal.drivers.sandbox import bubblewrap as boxes
from shoal.drivers.sandbox import internet, names
from shoal.drivers.supervisor import leftovers
from shoal.drivers.supervisor.frame_fields import FrameError, encoded
from shoal.drivers.supervisor.supervisor_frames import StartAttempt
from shoal.drivers.supervisor.supervisors import (
    AttemptEnd,
    SupervisorProcess,
    Supervisors,
)
from shoal.drivers.supervisor.visit_line import VisitLine
from shoal.drivers.task_socket import PATH_BYTES_MAX
from shoal.drivers.workdirs import Workdirs, hand_over
from shoal.errors import ShoalError, UsageError
from shoal.model.text.bounds import TEXT_LENGTH_MAX
from shoal.model.text.texts import cleaned
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.drivers import RunOrder, Stream, Watcher
    from shoal.model.ids import Attempt

NOT_RUNNING: Final = "the task does not run yet, or not any more"
SOCKET_NAME_BYTES: Final = 16
ROOMS_KEPT: Final = 256
MEMORY_UNBOOKED_PERCENT: Final = 50
"""Share of memory for a task of another owner that has booked none."""

CPU_MILLI_UNBOOKED: Final = 1_000
KEPT_FREE_MAX: Final = 10 << 30
"""Disk space kept free for the owner: this, or a twentieth of the disk if less."""

DISK_LEAST: Final = 64 << 20
DISK_KNOWN_S: Final = 0.5
"""How old the size of the disk may be; supervisors look no more often, either."""

MEMORY_LEAST: Final = 32 << 20
HURRY_S_MAX: Final = 2.0
"""Whoever has longer to end, ends with spare CPU time."""

SLOTS: Final = 1_000_000
"""More than there are slots: the uids of owners come after those of slots."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How tasks run on this worker.

    `cpus` are the CPUs to lend; empty means all that this process may use.
    `readable` are folders that sandboxed tasks may read besides the system's, such as
    a Python installation. `device_files` maps device ids to device files. With
    `owner_first`, tasks of other owners get only CPU time that nobody else wants.
    """

    sandbox: bool = True
    cgroups: bool = True
    cpus: tuple[int, ...] = ()
    path: str = environment.PATH_DEFAULT
    readable: tuple[str, ...] = ()
    device_files: dict[str, tuple[str, ...]] = {}
    processes_max: int = boxes.PROCESSES_MAX
    owner_first: bool = False
    warm: int = 1  # supervisors to start ahead of tasks


class _Running(msgspec.Struct):
    """A running attempt."""

    is_spare: bool  # it gets only the CPU time that nobody else wants
    stop_grace_s: float | None = None  # set by `stop`
    supervisor: SupervisorProcess | None = None


class _SlotGroup(NamedTuple):
    """The cgroups of a slot: their limits, how to enter them, and how to leave."""

    limits: cgroup.CgroupLimits
    doors: tuple[str, ...]
    home: tuple[str, ...]


_NO_GROUP: Final = _SlotGroup(cgroup.CgroupLimits(), (), ())


class _Command(NamedTuple):
    """What a supervisor executes for an attempt, and where.

    With a reusable sandbox, `room` is the command that builds it, and `shown` lists
    the readable folders below its `/tmp` and `/dev/shm`. Otherwise `setup` and `argv`
    include the command of a one-task sandbox, if sandboxing works.
    """

    directory: str
    setup: Sequence[str]
    argv: Sequence[str]
    shown: Sequence[str] = ()
    room: Sequence[str] = ()
    uplink: Sequence[str] = ()


@final
class ProcessDriver:
    """Runs tasks as processes of this machine."""

    name = "process"

    def __init__(self, root: Path, settings: ProcessSettings | None = None) -> None:
        """Keep all files below `root`, which no other worker may use."""
        self.root = root.absolute()
        self.settings = settings or ProcessSettings()
        self.mark = leftovers.worker_mark(self.root)
        self.sockets = self.root / "sockets"  # a folder that only our user can enter
        self._workdirs = Workdirs(self.root)
        self._cpus = Cpus(self.settings.cpus or sorted(os.sched_getaffinity(0)))
        self._running: dict[Attempt, _Running] = {}
        self._sandbox: boxes.Sandbox | None = None
        self._cgroups: Cgroups | None = None
        self._internet: internet.Internet | str = "it was not looked for"
        self._names: dict[str, names.Names] = {}  # by what a task can reach
        self._hurried: set[Attempt] = set()  # with spare CPU time, and told to end
        self._limited: dict[int, _SlotGroup] = {}  # what was set last, by slot
        self._said: tuple[str, ...] = ()
        self._promises = Promises(confined="it is not open")
        self._disk: os.statvfs_result
        self._disk_until = 0.0
        self._supervisors: Supervisors | None = None
        self._elsewhere: tempfile.TemporaryDirectory[str] | None = None

    @property
    def not_isolated(self) -> tuple[str, ...]:
        """Gaps in the isolation of tasks, one sentence each."""
        return self._said

    @property
    def promises(self) -> Promises:
        """The driver's guarantees to the owner of the machine; valid after `open`."""
        return self._promises

    @property
    def sandboxed(self) -> bool:
        """Whether tasks run in a sandbox."""
        return self._sandbox is not None

    async def open(self) -> None:
        """Kill leftovers, detect sandbox and cgroups, and start spare supervisors."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(leftovers.clear, self.root)
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
        if self._sandbox is not None:
            self._names = names.write(self.root / "names")
        why = self._internet if isinstance(self._internet, str) else ""
        self._promises = _promises(found, cgroups, why)
        self.sockets = self._socket_folder()
        self._supervisors = Supervisors(self.root, self.sockets, self.mark)
        await self._supervisors.warm(self.settings.warm)

    def prepare(self, attempt: Attempt) -> Path:
        """Make an empty work directory for the host to fill."""
        return self._workdirs.make(attempt)

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the path of an attempt's kept output, which may not exist."""
        return self._workdirs.kept(attempt, stream)

    async def run(self, order: RunOrder, watcher: Watcher) -> Outcome:
        """Run an attempt to its end; see `Driver.run`."""
        assert self._supervisors is not None, "open the driver first"
        if order.attempt in self._running:
            return Outcome("not-started", reason="the attempt runs already")
        if reason := unfit(order):
            return Outcome("not-started", reason=reason)
        running = _Running(is_spare=self._is_spare(order))
        self._running[order.attempt] = running
        cpus = self._cpus.take(order.allocation.cpu_milli)
        try:
            running.supervisor = await self._supervisors.get(as_list(cpus))
            try:
                end = await self._run(order, running, cpus, watcher)
            finally:
                await self._give_back(order, running.supervisor)
        except (OSError, UsageError, FrameError) as error:
            return Outcome("not-started", reason=cannot(error))
        finally:
            self._cpus.give(cpus, order.allocation.cpu_milli)
            del self._running[order.attempt]
            self._hurry(order.attempt, really=False)
        return outcome_of(end, stopped=running.stop_grace_s is not None)

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Send SIGTERM now and SIGKILL after the grace; a repeat may shorten it."""
        running = self._running.get(attempt)
        if running is None:
            return
        before = running.stop_grace_s
        running.stop_grace_s = grace_s if before is None else min(before, grace_s)
        if running.is_spare and grace_s <= HURRY_S_MAX:
            self._hurry(attempt, really=True)
        if running.supervisor is not None:
            running.supervisor.stop(grace_s)

    def _hurry(self, attempt: Attempt, *, really: bool) -> None:
        """Let a task that must end soon have the CPU to save its work, or no longer."""
        before = bool(self._hurried)
        if really:
            self._hurried.add(attempt)
        else:
            self._hurried.discard(attempt)
        if self._cgroups is not None and bool(self._hurried) != before:
            with contextlib.suppress(OSError):  # It ends, if later.
                self._cgroups.hurry(really=really)

    def visits(self, attempt: Attempt) -> VisitLine:
        """Return what lets others join a running attempt; see `Driver.visits`."""
        running = self._running.get(attempt)
        used = None if running is None else running.supervisor
        if used is None or used.visits is None:
            raise ShoalError(NOT_RUNNING)
        return used.visits

    async def clear(self, attempt: Attempt) -> None:
        """Kill all processes of an attempt whose run raised; raise if any survives."""
        await asyncio.to_thread(leftovers.kill_until_gone, self.mark, str(attempt))

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and kept output of ended attempts."""
        ended = [attempt for attempt in attempts if attempt not in self._running]
        while await asyncio.to_thread(self._workdirs.remove, ended):
            pass

    async def close(self) -> None:
        """End the supervisors; call after all runs have ended."""
        if self._supervisors is not None:
            await self._supervisors.close()
            self._supervisors = None
        if self._cgroups is not None:
            self._cgroups.close()
        if self._elsewhere is not None:
            self._elsewhere.cleanup()

    # One run.

    async def _run(
        self,
        order: RunOrder,
        running: _Running,
        cpus: tuple[int, ...],
        watcher: Watcher,
    ) -> AttemptEnd:
        used = running.supervisor
        assert used is not None
        name = self._workdirs.name(order.attempt)
        directory = order.directory or f"{name}.work"
        if running.stop_grace_s is not None:
            return AttemptEnd("not-started", reason="stopped before it started")
        if order.reach == "internet" and isinstance(self._internet, str):
            why = f"no internet without the local network: {self._internet}"
            return AttemptEnd("not-started", reason=why)
        if self._sandbox is not None and (reason := self._missing(order, directory)):
            return AttemptEnd("not-started", reason=reason)
        uid = self._uid_of(order, used)
        if uid is not None:
            for mount in order.mounts:
                if mount.ours:  # What is inside is theirs already.
                    os.chown(mount.source, uid, uid, follow_symlinks=False)
            if order.directory is not None:
                await asyncio.to_thread(hand_over, order.directory, uid)
        killed_before = self._limit(used, order)
        group = self._limited.get(used.slot, _NO_GROUP)
        start = self._start(order, used, name, cpus, group)
        calls_before = used.reports.counts["calls"]
        used.reports.begin(watcher.progressed, order.calls, order.open_api)
        try:
            end = await used.run(start, watcher.wrote)
        finally:
            used.reports.end()
        # A call of the task may still be using its folder.
        is_left = end.as_new and used.reports.counts["calls"] == calls_before
        free = is_left and not order.task.work.outputs
        used.spare, used.spare_for = start.make if free else "", _heirs(order)
        if end.kind == "not-started":  # Perhaps its group is gone.
            self._limited.pop(used.slot, None)
        groups = self._cgroups
        spare = self._is_spare(order)
        limit = limits_of(order).memory_bytes >> 20
        if (
            end.code
            and groups
            and limit
            and groups.out_of_memory(used.slot, spare=spare) > killed_before
        ):
            reason = (
                f"killed: it used more memory than it may, its limit is {limit} MiB"
            )
            end = msgspec.structs.replace(end, reason=reason)
        return end

    async def _give_back(self, order: RunOrder, used: SupervisorProcess) -> None:
        """Return a supervisor to the pool; if it died, first kill what it ran."""
        assert self._supervisors is not None
        try:
            if used.lost:
                attempt, slot = str(order.attempt), used.slot
                await asyncio.to_thread(
                    leftovers.kill_until_gone, self.mark, attempt, slot=slot
                )
        finally:
            await self._supervisors.put(used)

    def _start(
        self,
        order: RunOrder,
        used: SupervisorProcess,
        name: str,
        cpus: tuple[int, ...],
        group: _SlotGroup,
    ) -> StartAttempt:
        """Return the order for a supervisor to run an attempt."""
        box = self._sandbox
        directory = str(order.directory or f"{name}.work")
        env = environment.variables(
            order,
            mark=self.mark,
            home=directory if box is None else boxes.WORK,
            socket=str(used.reports.path) if box is None else boxes.SOCKET,
            path=self.settings.path,
            renumbered=box is not None,
            mounted=box is not None,
        )
        most_disk, kept = self._disk_of(order)
        heirs = _heirs(order)
        is_bound = order.foreign or order.allocation.disk_bytes > 0
        scratch = _booked_memory(order) or boxes.SCRATCH_BYTES_DEFAULT
        command = self._command(order, used, directory, scratch)
        return StartAttempt(
            kept=name,
            make="" if order.directory else directory,
            spare=used.spare if box is None or used.spare_for == heirs else "",
            owner=self._owner_of(order, used),
            directory=command.directory,
            cpus=as_list(cpus),
            memory_bytes=0 if group.doors else limits_of(order).memory_bytes,
            boxed=box is not None,
            scratch_bytes=scratch,
            processes_max=0 if box is None else box.processes_most,
            env=list(map("=".join, env.items())),
            setup=command.setup,
            shown=command.shown,
            room=command.room,
            secrets=tuple(order.secrets.values()),
            folder=str(order.counted or directory),
            disk_bytes=most_disk,
            keep_bytes=kept,
            file_bytes=max(most_disk, scratch) if is_bound else 0,
            doors=group.doors,
            home=group.home,
            argv=command.argv,
            uplink=command.uplink,
            caches=[
                f"{mount.bytes_max}:{mount.source}"
                for mount in order.mounts
                if mount.bytes_max
            ],
            stdin=order.task.work.stdin,
            spare_cpu=self._is_spare(order),
            job=heirs,
        )

    def _uid_of(self, order: RunOrder, used: SupervisorProcess) -> int | None:
        """Return the uid that a task runs as; None for our own user."""
        if self._sandbox is None:
            return None
        return self._sandbox.uid_of(_number_of(order, used))

    def _owner_of(self, order: RunOrder, used: SupervisorProcess) -> int:
        """Give the socket to the task's uid and return it; -1 for our own user."""
        uid = self._uid_of(order, used)
        if uid is None:
            return -1
        os.chown(used.reports.path, uid, uid)
        return uid

    def _command(
        self, order: RunOrder, used: SupervisorProcess, directory: str, scratch: int
    ) -> _Command:
        """Return what to execute: the program, or a sandbox around it."""
        box, work = self._sandbox, order.task.work
        if box is None:
            return _Command(directory, work.setup, work.argv)
        # What lies at its own path may lie below /tmp, where a task has its own files.
        there = (m.source for m in order.mounts if m.is_in_place)
        readable = (*self.settings.readable, *there)
        shares = order.allocation.shares
        files = [self.settings.device_files.get(share.device, ()) for share in shares]
        inside = boxes.Box(
            directory=str(self.root) if box.stays else directory,
            socket=str(used.reports.path),
            devices=tuple(dict.fromkeys(path for paths in files for path in paths)),
            readable=readable,
            network=order.reach != "none",
            names=self._names[order.reach],
            mounts=tuple(
                (m.source, m.place, m.writable)
                for m in order.mounts
                if m.source not in readable
            ),
            scratch_bytes=0 if box.stays else scratch,
            slot=_number_of(order, used),
        )
        if not box.stays:
            setup = box.argv(inside, work.setup) if work.setup else ()
            return _Command("/", setup, box.argv(inside, work.argv))
        shown, room = boxes.hidden(readable), _room(box, inside)
        uplink: tuple[str, ...] = ()
        if order.reach == "internet":
            assert not isinstance(self._internet, str), "asked before it starts"
            room, uplink = self._internet.room(room), self._internet.uplink
        return _Command(directory, work.setup, work.argv, shown, room, uplink)

    def _missing(self, order: RunOrder, directory: str | Path) -> str | None:
        work = order.task.work
        default = environment.search_path(order, self.settings.path, mounted=True)
        path = work.env.get("PATH", default)
        readable = {each: each for each in self.settings.readable}
        readable.update((mount.place, mount.source) for mount in order.mounts)
        programs = [argv[0] for argv in (work.setup, work.argv) if argv]
        if work.setup:
            programs = programs[:1]  # The setup may create the main program.
        for name in programs:
            if why := boxes.program_missing(name, path, Path(directory), readable):
                return why
        return None

    def _limit(self, used: SupervisorProcess, order: RunOrder) -> int:
        """Set the limits of a slot's cgroup; return its out-of-memory kills so far."""
        if self._cgroups is None:
            return 0
        limits = limits_of(order, self.settings.processes_max)
        limits = msgspec.structs.replace(limits, spare=self._is_spare(order))
        group = self._limited.get(used.slot)
        if group is None or group.limits != limits:  # Tasks often have the same.
            self._limited.pop(used.slot, None)
            doors = self._cgroups.doors(used.slot, spare=limits.spare)
            try:
                self._cgroups.limit(used.slot, limits)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                used.lost = True  # Its sandbox goes, and the next try has a new one.
                most = f"{limits.memory_bytes >> 20} MiB"
                why = f"what tasks before it left in memory is more than its {most}"
                raise UsageError(why) from None
            home = self._cgroups.home
            self._limited[used.slot] = _SlotGroup(limits, doors, home)
        if not limits.memory_bytes:
            return 0
        return self._cgroups.out_of_memory(used.slot, spare=limits.spare)

    def _is_spare(self, order: RunOrder) -> bool:
        """Whether a task gets only the CPU time that nobody else wants."""
        return order.foreign and self.settings.owner_first

    def _disk_of(self, order: RunOrder) -> tuple[int, int]:
        """Return the size limit of a work directory, and the space to keep free."""
        now = time.monotonic()
        if now >= self._disk_until:
            self._disk = os.statvfs(self.root)
            self._disk_until = now + DISK_KNOWN_S
        found = self._disk
        kept = min(found.f_blocks * found.f_frsize // 20, KEPT_FREE_MAX)
        free = max(DISK_LEAST, found.f_bavail * found.f_frsize - kept)
        unbooked = free // 2 if order.foreign else free
        return order.allocation.disk_bytes or unbooked, kept

    def _socket_folder(self) -> Path:
        """Make the folder of sockets: below the root, unless that path is too long."""
        folder = self.sockets
        if len(os.fsencode(folder)) + SOCKET_NAME_BYTES <= PATH_BYTES_MAX:
            folder.mkdir(mode=0o700, exist_ok=True)
            return folder
        self._elsewhere = tempfile.TemporaryDirectory(prefix="shoal-")
        return Path(self._elsewhere.name)


def _number_of(order: RunOrder, used: SupervisorProcess) -> int:
    """Return what tells the uid of a task from others: its slot, or its owners."""
    return SLOTS + order.user if order.user else used.slot


def _heirs(order: RunOrder) -> str:
    """Return which tasks may take over what a task left as new."""
    return f"{order.attempt.scheduler}/{order.task.job}/{order.user}"


@functools.lru_cache(ROOMS_KEPT)
def _room(box: boxes.Sandbox, inside: boxes.Box) -> tuple[str, ...]:
    """Return the command for a sandbox; cached, as building it costs a task's time."""
    return tuple(box.room(inside))


def unfit(order: RunOrder) -> str | None:
    """Return why an order cannot run on any machine; None if it can."""
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


def _unfit_text(order: RunOrder) -> str | None:
    """Return which text of an order the system cannot take; None if all are fine."""
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
    with contextlib.suppress(FrameError):
        encoded("".join(itertools.chain.from_iterable(texts.values())))
        return None  # All at once: to look at each costs a task's time.
    for what, found in texts.items():
        for text in found:
            try:
                encoded(text)
            except FrameError as error:
                return f"{what} cannot be used: {error}"
    return None


def outcome_of(end: AttemptEnd, *, stopped: bool) -> Outcome:
    """Convert a supervisor's report of an end into an `Outcome`."""
    reason = cut(end.reason)
    match end.kind:
        case "not-started":
            return Outcome("not-started", reason=reason)
        case "exited":
            return Outcome(
                "cancelled" if stopped else "exited",
                exit_code=end.code,
                reason=reason,
                memory_bytes=end.memory_bytes,
            )
        case _:
            return Outcome("lost", reason=reason)


def cannot(error: Exception) -> str:
    """Return why this worker cannot run a task, without revealing local paths."""
    why = error.strerror if isinstance(error, OSError) else None
    return cut(f"the worker cannot: {why or error}")


def cut(text: str) -> str:
    """Shorten and clean a text for a message; file names may not be UTF-8."""
    return cleaned(text[:TEXT_LENGTH_MAX])


def limits_of(
    order: RunOrder, processes: int = boxes.PROCESSES_MAX
) -> cgroup.CgroupLimits:
    """Return the limits of a task: what it has booked.

    A task of another owner that booked no memory or CPU gets a default limit. One that
    booked less memory than it takes to start a process gets that much: its supervisor
    is inside while it forks, and would be killed in its place.
    """
    memory_bytes, cpu_milli = _booked_memory(order), order.allocation.cpu_milli
    if order.foreign:
        memory_bytes = memory_bytes or _most_memory()
        cpu_milli = cpu_milli or CPU_MILLI_UNBOOKED
    if memory_bytes:
        memory_bytes = max(memory_bytes, MEMORY_LEAST)
    return cgroup.CgroupLimits(memory_bytes, cpu_milli, processes)


def _booked_memory(order: RunOrder) -> int:
    """Return the memory that a task may take; what an earlier run took is no limit."""
    return 0 if order.task.memory_from == "runs" else order.allocation.memory_bytes


@functools.cache
def _most_memory() -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total * MEMORY_UNBOOKED_PERCENT // 100


def _promises(
    found: boxes.Sandbox | str, cgroups: Cgroups | str, no_internet: str
) -> Promises:
    """Return the guarantees of this sandbox and these cgroups."""
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
    """Return the gaps in the isolation of tasks, one sentence each."""
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
