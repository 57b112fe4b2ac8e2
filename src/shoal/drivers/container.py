"""Run tasks in containers by docker or podman, if one is installed.

The engine isolates the container; a supervisor runs the engine's client, which forwards
signals. Killing the client leaves its container running, so each container carries
labels of its worker and attempt. `run` removes the containers of its attempt at the
end, and `open` removes those left by an earlier run of the node.

Of the node, a container sees only its work directory and its own socket. Both lie in
folders that only the node's user can enter. So no other user of the machine reaches
them, even where their modes admit every user of the container.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import stat
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.drivers import Promises
from shoal.drivers.container_engines import call, client_env
from shoal.drivers.environment import variables
from shoal.drivers.process import (
    ProcessDriver,
    ProcessSettings,
    cannot,
    limits_of,
    unfit,
)
from shoal.drivers.sandbox.bubblewrap import SOCKET, WORK
from shoal.drivers.task_socket import SOCKET_MODE, TaskSocket
from shoal.errors import ShoalError, UsageError
from shoal.model.job import Work
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.drivers import RunOrder, Stream, Watcher
    from shoal.drivers.container_engines import Engine
    from shoal.drivers.supervisor.visit_line import VisitLine
    from shoal.model.ids import Attempt

REMOVE_TIMEOUT_S: Final = 30.0
PROCESSES_MAX: Final = 4_096
WORKER_LABEL: Final = "shoal.worker"
ATTEMPT_LABEL: Final = "shoal.attempt"
REMOVE_TRIES_MAX: Final = 30
REMOVE_PAUSE_S: Final = 1.0
GRACE_MAX_S: Final = 86_400
USED: Final = "used"
"""A file that exists if earlier runs may have left containers."""

FAILED_CODE: Final = 125  # exit code of an engine that started nothing
COMPLAINTS: Final = ("Error: ", "docker: ", "podman: ")
OPEN_SOCKET: Final = 0o666
OPEN_FOLDER: Final = 0o777
OPEN_FILE: Final = 0o666
LEAST_SHARES: Final = "2"


def container_argv(
    engine: Engine,
    order: RunOrder,
    *,
    directory: Path,
    socket: Path,
    env_file: Path,
    mark: str,
    owner_first: bool = False,
) -> list[str]:
    """Return the command that runs a task in a container and waits for it.

    With `owner_first`, other programs go before a task of another owner.

    Variables go through a file, because any user can read a command line. Only the
    addresses of a gang, which contain line breaks and are not secret, are arguments.
    """
    most, work = limits_of(order), order.task.work
    limits = ["--pids-limit", str(PROCESSES_MAX)]
    if most.cpu_milli:
        limits += ["--cpus", f"{most.cpu_milli / 1_000:g}"]
    if owner_first and order.foreign:
        limits += ["--cpu-shares", LEAST_SHARES]
    if most.memory_bytes:
        size = str(most.memory_bytes)
        limits += ["--memory", size, "--memory-swap", size]
    return [
        *(engine.path, "run", "--rm", "--interactive=false"),
        *(("--init",) if engine.init else ()),
        *("--label", f"{WORKER_LABEL}={mark}", "--pull", "missing"),
        *("--label", f"{ATTEMPT_LABEL}={order.attempt}"),
        *("--network", _network(order)),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *(("--security-opt", "label=disable") if engine.labelled else ()),
        *(("--user", engine.user) if engine.user else ()),
        *limits,
        *_gpus(engine, order),
        *("--volume", f"{directory}:{WORK}", "--workdir", WORK),
        *("--volume", f"{socket}:{SOCKET}:ro"),
        *_mounts(order),
        *("--env-file", str(env_file)),
        *_places(order),
        *("--", work.image),  # So that no image name is taken for an option.
        *_program(work),
    ]


def _mounts(order: RunOrder) -> list[str]:
    """Return the volumes of what the worker lends; their paths have no colon."""
    found: list[str] = []
    for each in order.mounts:
        how = "" if each.writable else ":ro"
        found += ["--volume", f"{each.source}:{each.place}{how}"]
    return found


def _network(order: RunOrder) -> str:
    """Return the network mode; members of a gang need the host's network."""
    if order.reach != "all":  # The core never orders "internet" for a container.
        return "none"
    return "host" if order.addresses else "bridge"


def _places(order: RunOrder) -> tuple[str, ...]:
    if len(order.addresses) < 2:
        return ()
    return ("--env", "NODE_IPS=" + "\n".join(order.addresses))


def _program(work: Work) -> tuple[str, ...]:
    """Return the command to run inside: the setup, if any, then the program."""
    if not work.setup:
        return work.argv
    both = f"{shlex.join(work.setup)} && exec {shlex.join(work.argv)}"
    return ("/bin/sh", "-c", both)


def _gpus(engine: Engine, order: RunOrder) -> list[str]:
    ids = [share.device for share in order.allocation.shares]
    if not ids:
        return []
    if engine.kind == "docker":
        return ["--gpus", f'"device={",".join(ids)}"']
    return [text for id_ in ids for text in ("--device", f"nvidia.com/gpu={id_}")]


def env_lines(order: RunOrder, mark: str) -> str:
    """Return the variables of a task in an engine's format, one per line."""
    found = variables(
        order, mark=mark, home=WORK, socket=SOCKET, renumbered=True, mounted=True
    )
    if "PATH" not in order.task.work.env:
        del found["PATH"]  # The image has its own.
    # Some engines expose the GPUs named here, and many images name all.
    ids = [share.device for share in order.allocation.shares]
    found["NVIDIA_VISIBLE_DEVICES"] = ",".join(ids) or "void"
    pairs = {name: text.replace("\n", " ") for name, text in found.items()}
    return "".join(f"{name}={text}\n" for name, text in pairs.items())


def open_up(directory: Path) -> None:
    """Make a work directory writable for every user of a container.

    Other users of the machine cannot enter its parent folder. Links are skipped.
    """
    directory.chmod(OPEN_FOLDER)
    for folder, folders, files in os.walk(directory):
        for name in folders:
            _open_to_all(f"{folder}/{name}", OPEN_FOLDER)
        for name in files:
            _open_to_all(f"{folder}/{name}", OPEN_FILE)


def _open_to_all(path: str, mode: int) -> None:
    found = os.lstat(path).st_mode
    if not stat.S_ISLNK(found):
        os.chmod(path, stat.S_IMODE(found) | mode)  # noqa: PTH101 - A str.


@final
class ContainerDriver:
    """Runs tasks in containers by supervising an engine's client."""

    name = "container"

    def __init__(self, root: Path, engine: Engine, settings: ProcessSettings) -> None:
        """Keep all files below `root`; the client itself runs without a sandbox."""
        plain = msgspec.structs.replace(settings, sandbox=False, warm=0)
        self._engine = engine
        self._processes = ProcessDriver(root, plain)
        self._numbers = itertools.count()

    @property
    def promises(self) -> Promises:
        """The driver's guarantees; the engine enforces the limits."""
        limited = "" if self._engine.limits else "no root, and cgroups v1"
        return Promises(
            memory=limited,
            cpu=limited,
            disk="files outside the work directory are not counted",
            internet="a container gets the whole network or none",
        )

    async def open(self) -> None:
        """Remove processes and containers left by an earlier run of the node."""
        await self._processes.open()
        used = self._processes.root / USED
        if used.exists():  # Asking the engine is the slowest step.
            await self._remove(f"{WORKER_LABEL}={self._processes.mark}")
            used.unlink()

    def prepare(self, attempt: Attempt) -> Path:
        """Make an empty work directory for the host to fill."""
        return self._processes.prepare(attempt)

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the path of an attempt's kept output, which may not exist."""
        return self._processes.kept(attempt, stream)

    async def run(self, order: RunOrder, watcher: Watcher) -> Outcome:
        """Run an attempt to its end; see `Driver.run`."""
        if not order.task.work.image:
            return Outcome("not-started", reason="the job names no image")
        if reason := unfit(order):
            return Outcome("not-started", reason=reason)
        closed = bool(self._engine.user)  # The container's user owns the files.
        directory = order.directory or self.prepare(order.attempt)
        reports = TaskSocket(self._processes.sockets / f"box{next(self._numbers)}.sock")
        try:
            reports.open(SOCKET_MODE if closed else OPEN_SOCKET)
            if not closed:
                await asyncio.to_thread(open_up, directory)
        except (OSError, UsageError) as error:
            reports.close()
            return Outcome("not-started", reason=cannot(error))
        reports.begin(watcher.progressed, order.calls, order.open_api)
        try:
            return await self._run(order, directory, reports.path, watcher)
        finally:
            reports.end()
            reports.close()

    async def _run(
        self, order: RunOrder, directory: Path, socket: Path, watcher: Watcher
    ) -> Outcome:
        """Run the engine's client; remove the container before returning."""
        env_file = self._processes.kept(order.attempt, "stdout").with_suffix(".env")
        (self._processes.root / USED).touch()
        lines = env_lines(order, self._processes.mark)
        await asyncio.to_thread(env_file.write_text, lines, encoding="utf-8")
        argv = container_argv(
            self._engine,
            order,
            directory=directory,
            socket=socket,
            env_file=env_file,
            mark=self._processes.mark,
            owner_first=self._processes.settings.owner_first,
        )
        client = msgspec.structs.replace(
            order,
            directory=directory,
            task=msgspec.structs.replace(
                order.task, work=Work(argv=tuple(argv), env=client_env())
            ),
            allocation=msgspec.structs.replace(order.allocation, memory_bytes=0),
            calls=None,
            open_api=None,
            mounts=(),
            foreign=False,  # The client is ours; the engine limits the container.
        )
        try:
            outcome = await self._processes.run(client, watcher)
            if complaint := await asyncio.to_thread(self._complaint, order, outcome):
                return Outcome("not-started", reason=complaint)
            return outcome
        finally:
            env_file.unlink(missing_ok=True)
            await self._remove(f"{ATTEMPT_LABEL}={order.attempt}")

    def _complaint(self, order: RunOrder, outcome: Outcome) -> str:
        """Return the engine's error if it could not start the program, else empty."""
        kept = self.kept(order.attempt, "stderr")
        if outcome.exit_code != FAILED_CODE or not kept.is_file():
            return ""
        lines = kept.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines and lines[-1].startswith(COMPLAINTS) else ""

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Send SIGTERM now and SIGKILL after the grace; a repeat may shorten it."""
        self._processes.stop(attempt, min(grace_s, GRACE_MAX_S))

    def visits(self, attempt: Attempt) -> VisitLine:
        """Raise: the supervisor sees the engine's client, not the container."""
        raise ShoalError(
            "a task in a container cannot be joined",
            because="the program inside is a child of the engine, not of shoal",
            hint=f"on its machine: {self._engine.kind} exec",
        )

    async def clear(self, attempt: Attempt) -> None:
        """Kill all processes of an attempt whose run raised; raise if any survives."""
        await self._processes.clear(attempt)
        await self._remove(f"{ATTEMPT_LABEL}={attempt}")

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and kept output of ended attempts."""
        await self._processes.discard(*attempts)

    async def close(self) -> None:
        """End the supervisors; call after all runs have ended."""
        await self._processes.close()

    async def _remove(self, label: str) -> None:
        """Remove all containers with a label, running or not, and verify it.

        Raises if any may be left, because its devices must not be lent again.
        """
        engine = self._engine.path
        listing = [engine, "ps", "--all", "--quiet", "--filter", f"label={label}"]
        said = ""
        for _ in range(REMOVE_TRIES_MAX):
            code, said = await call(listing, REMOVE_TIMEOUT_S)
            if code == 0 and not said:
                return
            if code == 0:
                code, _ = await call([engine, "rm", "--force", said], REMOVE_TIMEOUT_S)
            if code != 0:
                await asyncio.sleep(REMOVE_PAUSE_S)
        raise ShoalError(
            f"containers labelled {label} cannot be removed",
            because=said,
            hint=f"see `{self._engine.kind} ps`; their devices stay in use until then",
        )
