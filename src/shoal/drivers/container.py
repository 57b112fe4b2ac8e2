"""The driver of containers: docker or podman, when one is there.

The engine keeps the container apart; a warden watches over the engine's client, which
passes signals on. A client that is killed leaves its container running, so containers
carry a label and are removed by it when a run has ended, however it ended.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.drivers.environment import variables
from shoal.drivers.process import ProcessDriver, Settings
from shoal.errors import ShoalError
from shoal.model.job import Work
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from shoal.drivers import Order, Stream, Watcher
    from shoal.model.ids import Attempt

Kind = Literal["docker", "podman"]

PROBE_TIMEOUT_S: Final = 10.0
REMOVE_TIMEOUT_S: Final = 30.0
PROCESSES_MAX: Final = 4_096
WORK: Final = "/job"
WORKER_LABEL: Final = "shoal.worker"
ATTEMPT_LABEL: Final = "shoal.attempt"
REMOVE_TRIES_MAX: Final = 30
REMOVE_PAUSE_S: Final = 1.0
GRACE_MAX_S: Final = 86_400
PROBES: Final[dict[Kind, str]] = {"docker": "info", "podman": "--version"}
"""What shows that an engine works. Podman has no daemon that could be down."""

USED: Final = "used"
"""A file that is there if there may be containers of an earlier life."""

FAILED_CODE: Final = 125  # what an engine exits with if it started nothing
COMPLAINTS: Final = ("Error: ", "docker: ", "podman: ")
INITS: Final = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit")
ENGINE_ENV: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Engine(msgspec.Struct, frozen=True):
    """An engine that answers."""

    kind: Kind
    path: str
    init: bool = True  # whether it has a first process that reaps and passes signals


def container_argv(
    engine: Engine,
    order: Order,
    *,
    directory: Path,
    env_file: Path,
    mark: str,
) -> list[str]:
    """Return the command that runs a task in a container and waits for it.

    Variables go through a file, because a command line can be read by everybody.
    """
    allocation, work = order.allocation, order.task.work
    limits = ["--pids-limit", str(PROCESSES_MAX)]
    if allocation.cpu_milli:
        limits += ["--cpus", f"{allocation.cpu_milli / 1_000:g}"]
    if allocation.memory_bytes:
        size = str(allocation.memory_bytes)
        limits += ["--memory", size, "--memory-swap", size]
    return [
        *(engine.path, "run", "--rm", "--interactive=false"),
        *(("--init",) if engine.init else ()),
        *("--label", f"{WORKER_LABEL}={mark}", "--pull", "missing"),
        *("--label", f"{ATTEMPT_LABEL}={order.attempt}"),
        *("--network", "bridge" if work.network else "none"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *limits,
        *_gpus(engine, order),
        *("--volume", f"{directory}:{WORK}", "--workdir", WORK),
        *("--env-file", str(env_file)),
        work.image,
        *_program(work),
    ]


def _program(work: Work) -> tuple[str, ...]:
    """Return what runs inside; a setup comes before it, in the same container."""
    if not work.setup:
        return work.argv
    both = f"{shlex.join(work.setup)} && exec {shlex.join(work.argv)}"
    return ("/bin/sh", "-c", both)


def _gpus(engine: Engine, order: Order) -> list[str]:
    ids = [share.device for share in order.allocation.shares]
    if not ids:
        return []
    if engine.kind == "docker":
        return ["--gpus", f'"device={",".join(ids)}"']
    return [text for id_ in ids for text in ("--device", f"nvidia.com/gpu={id_}")]


def env_lines(order: Order, mark: str) -> str:
    """Return the variables of a task as an engine reads them: one a line."""
    found = variables(order, mark=mark, home=WORK, socket="", renumbered=True)
    del found["SHOAL_SOCKET"]  # No way for reports into a container yet.
    if "PATH" not in order.task.work.env:
        del found["PATH"]  # The image has its own.
    pairs = {name: text.replace("\n", " ") for name, text in found.items()}
    return "".join(f"{name}={text}\n" for name, text in pairs.items())


async def find_engine(timeout_s: float = PROBE_TIMEOUT_S) -> Engine | str:
    """Return an engine that answers in time, or why there is none."""
    why = "neither docker nor podman is installed"
    for kind, probe in PROBES.items():
        path = shutil.which(kind)
        if path is None:
            continue
        code, said = await _call([path, probe], timeout_s)
        if code == 0:
            return Engine(kind, path, init=kind == "docker" or _has_init())
        why = f"{kind} does not answer: {said}"
    return why


def _has_init() -> bool:
    """Whether podman finds its init, a package that it can do without."""
    return any(Path(path).is_file() for path in INITS)


async def _call(argv: list[str], timeout_s: float) -> tuple[int, str]:
    """Run a short command of an engine; return its code and its last line."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, f"no answer in {timeout_s:g} s"
    lines = output.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else ""


@final
class ContainerDriver:
    """Runs tasks in containers, through the processes of an engine's client."""

    name = "container"

    def __init__(self, root: Path, engine: Engine, settings: Settings) -> None:
        """Keep everything below `root`; the client itself runs without a sandbox."""
        plain = msgspec.structs.replace(settings, sandbox=False, warm=0)
        self._engine = engine
        self._processes = ProcessDriver(root, plain)

    @property
    def not_isolated(self) -> tuple[str, ...]:
        """What a task here can reach or use up that it should not, in sentences."""
        return (
            "a container shares the kernel and the GPU driver with the machine",
            "the size of a work directory has no limit",
            f"files in it belong to whom {self._engine.kind} runs containers as",
        )

    async def open(self) -> None:
        """Remove what is left of earlier lives."""
        await self._processes.open()
        used = self._processes.root / USED
        if used.exists():  # To ask the engine takes longer than all else.
            await self._remove(f"{WORKER_LABEL}={self._processes.mark}")
            used.unlink()

    def prepare(self, attempt: Attempt) -> Path:
        """Make the empty work directory of an attempt, for the host to fill."""
        return self._processes.prepare(attempt)

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the file with the end of what an attempt wrote, if it wrote."""
        return self._processes.kept(attempt, stream)

    async def run(self, order: Order, watcher: Watcher) -> Outcome:
        """Run an attempt to its end; see `Driver.run`."""
        if not order.task.work.image:
            return Outcome("not-started", reason="the job names no image")
        directory = order.directory or self.prepare(order.attempt)
        env_file = self._processes.kept(order.attempt, "stdout").with_suffix(".env")
        lines = env_lines(order, self._processes.mark)
        (self._processes.root / USED).touch()
        await asyncio.to_thread(env_file.write_text, lines, encoding="utf-8")
        argv = container_argv(
            self._engine,
            order,
            directory=directory,
            env_file=env_file,
            mark=self._processes.mark,
        )
        work = Work(argv=tuple(argv), env=ENGINE_ENV)
        client = msgspec.structs.replace(
            order,
            directory=directory,
            task=msgspec.structs.replace(order.task, work=work),
            allocation=msgspec.structs.replace(order.allocation, memory_bytes=0),
        )
        try:
            outcome = await self._processes.run(client, watcher)
            if complaint := await asyncio.to_thread(self._complaint, order, outcome):
                return Outcome("not-started", reason=complaint)
            return outcome
        finally:
            env_file.unlink(missing_ok=True)
            await self._remove(f"{ATTEMPT_LABEL}={order.attempt}")

    def _complaint(self, order: Order, outcome: Outcome) -> str:
        """Return what the engine said if it could not start the program."""
        kept = self.kept(order.attempt, "stderr")
        if outcome.exit_code != FAILED_CODE or not kept.is_file():
            return ""
        lines = kept.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines and lines[-1].startswith(COMPLAINTS) else ""

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Send SIGTERM now and SIGKILL after the grace; a repeat may shorten it."""
        self._processes.stop(attempt, min(grace_s, GRACE_MAX_S))

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and the kept output of ended attempts."""
        await self._processes.discard(*attempts)

    async def close(self) -> None:
        """End the wardens; all runs have ended or were cancelled before."""
        await self._processes.close()

    async def _remove(self, label: str) -> None:
        """Remove the containers with a label, alive or not, and know that it is done.

        If that cannot be known this raises: their devices must not be lent again.
        """
        engine = self._engine.path
        listing = [engine, "ps", "--all", "--quiet", "--filter", f"label={label}"]
        said = ""
        for _ in range(REMOVE_TRIES_MAX):
            code, said = await _call(listing, REMOVE_TIMEOUT_S)
            if code == 0 and not said:
                return
            if code == 0:
                code, _ = await _call([engine, "rm", "--force", said], REMOVE_TIMEOUT_S)
            if code != 0:
                await asyncio.sleep(REMOVE_PAUSE_S)
        raise ShoalError(
            f"containers labelled {label} cannot be removed",
            because=said,
            hint=f"see `{self._engine.kind} ps`; their devices stay in use until then",
        )
