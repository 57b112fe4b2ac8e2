"""Make environments with uv, as tasks of the owner that wants them.

The worker machine decides what is made, when, and what goes; this performs it. Making
an environment runs code that packages bring, so it runs like the task that wants it: in
a sandbox, in the room of its lease, under its limits, and with the network that the
machine allows. The environment is mounted where tasks see it later, so that paths in it
are right; it becomes visible to tasks only by its record (`records.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

import shoal
from shoal.blobs import unpacking
from shoal.core.environments.events import (
    EnvironmentGrown,
    EnvironmentMade,
    EnvironmentsFound,
    RemoveEnvironment,
)
from shoal.core.environments.shelf import BUILDER_CACHE
from shoal.core.events import MakeEnvironment
from shoal.drivers import RunOrder, TaskMount
from shoal.errors import ShoalError
from shoal.model.caches import ENVIRONMENT_FILES, digest_of
from shoal.model.job import Work
from shoal.model.spec.environments import CACHES
from shoal.model.text.texts import cleaned
from shoal.protocol.messages import Outcome
from shoal.runtime.artifacts.staging import tree_of
from shoal.runtime.environments.records import (
    EnvironmentRecord,
    EnvironmentRecords,
    size_of,
)
from shoal.runtime.environments.users import user_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from shoal.core.events import Event, StartTask, StopTask
    from shoal.drivers import Driver, Stream
    from shoal.model.ids import Attempt, BlobId, EnvironmentId, OwnerId
    from shoal.runtime.artifacts.blob_exchange import BlobExchange
    from shoal.runtime.environments.loans import Loans

PLACE: Final = "/env"
"""Where a task sees its environment, if it is in a sandbox."""

CACHE_PLACE: Final = "/cache"
LIBRARY: Final = "/run/shoal/lib"
UV: Final = "/run/shoal/uv"
BUILT_FROM: Final = "/run/shoal/env"
MAKE_S: Final = 3_600.0
"""Most time that the making of one environment may take."""

LINES_KEPT: Final = 12
SETTINGS_FILE: Final = ".uv.toml"
_PATH: Final = re.compile(r"""(?:file://|(?<![\w:/.]))(/[^\s"',\]]+)""")
LINES_BYTES_MAX: Final = 2_000
WORKERS_SETTINGS: Final = (
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"),
    *("UV_FIND_LINKS", "UV_INDEX_STRATEGY", "UV_OFFLINE", "UV_SYSTEM_CERTS"),
    *("UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
"""Variables of the node that say where its owner gets packages. They may hold
passwords, so only its own tasks are built with them."""

SCRIPT: Final = """
set -eu
wanted=${PYTHON_WANTED:-$(command -v python3 || command -v python)}
"$UV" venv --quiet --allow-existing --python "$wanted" "$ENVIRONMENT"
python="$ENVIRONMENT/bin/python"
if [ -f pyproject.toml ]; then
    locked=--no-install-project
    [ ! -f uv.lock ] || locked="--no-install-project --frozen"
    export UV_PROJECT_ENVIRONMENT="$ENVIRONMENT"
    "$UV" sync --quiet --python "$python" $locked
elif [ -s constraints.txt ]; then
    "$UV" pip install --quiet --python "$python" -r requirements.txt -c constraints.txt
elif [ -s requirements.txt ]; then
    "$UV" pip install --quiet --python "$python" -r requirements.txt
fi
for site in "$ENVIRONMENT"/lib/python3*/site-packages; do
    echo "$LIBRARY" > "$site/shoal_library.pth"
done
chmod -R go+rX "$ENVIRONMENT"
"""
"""Makes a Python environment. Last in its path comes `shoal`, for `shoal.log`."""

COPY: Final = 'cp -dR --preserve=mode,timestamps,links "$0/." "$1"'


@final
class EnvironmentMaker:
    """Performs what the worker machine decides about environments."""

    def __init__(
        self,
        root: Path,
        driver: Driver,
        blobs: BlobExchange,
        loans: Loans,
        feed: Callable[[Event], None],
        owner: OwnerId,
        open_secrets: Callable[[StartTask], dict[str, str]],
        bytes_max: int,
    ) -> None:
        """Keep environments below `root`, and make them with `driver`.

        Owners other than `owner` are foreign. A task whose cache is larger than
        `bytes_max` is killed; the machine removes what is beyond that in between.
        """
        self._bytes_max = bytes_max
        self.records = EnvironmentRecords(root)
        self.loans = loans
        self.known = EnvironmentsFound(())  # set by `open`
        self._driver = driver
        self._blobs = blobs
        self._feed = feed
        self._owner = owner
        self._open_secrets = open_secrets
        self._making: dict[Attempt, asyncio.Task[None]] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def performers(self) -> Mapping[type, Callable[..., None]]:
        """What performs the effects about environments."""
        return {MakeEnvironment: self.make, RemoveEnvironment: self.remove}

    async def open(self) -> None:
        """Find what earlier runs of the node have made; call after `Driver.open`."""
        place = PLACE if self._mounted else str(self.records.root)
        if not self._mounted:
            self._link_library()
        self.known = EnvironmentsFound(
            await asyncio.to_thread(self.records.load, place)
        )

    @property
    def _linked(self) -> Path:
        return self.records.root / "lib" / "shoal"

    @property
    def _mounted(self) -> bool:
        return not self._driver.promises.confined

    # Effects.

    def make(self, effect: MakeEnvironment) -> None:
        """Make an environment in the background; do nothing after `close`."""
        if not self._closed:
            making = asyncio.get_running_loop().create_task(self._make(effect))
            self._making[effect.start.attempt] = making

    def remove(self, effect: RemoveEnvironment) -> None:
        """Remove an environment in the background."""
        self._do(asyncio.to_thread(self.records.remove, effect.id))

    def stop(self, effect: StopTask) -> bool:
        """Stop what an attempt makes; return whether it made anything."""
        making = self._making.get(effect.attempt)
        if making is not None:
            making.cancel()
        return making is not None

    def used(self, start: StartTask) -> None:
        """Measure the caches of an attempt that has ended."""
        for each in start.environments:
            if each.kind == "cache" and not self._closed:
                self._do(self._measure(each.id))

    async def close(self) -> None:
        """Stop all builds; start no more."""
        self._closed = True
        for making in self._making.values():
            making.cancel()
        todo = (*self._making.values(), *self._chores)
        await asyncio.gather(*todo, return_exceptions=True)

    def _do(self, chore: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _measure(self, id_: EnvironmentId) -> None:
        size = await asyncio.to_thread(self.records.measured, id_)
        if size is not None:
            self._feed(EnvironmentGrown(id_, size))

    # What a task sees.

    def mounts_of(self, start: StartTask) -> tuple[TaskMount, ...]:
        """Return what a task sees of its environments and of what is lent to it."""
        setup = start.environment("setup")
        python = start.environment("python")
        mounts = [*self._caches(start), *self.loans.mounts_of(start.task.work)]
        for each in start.environments:
            with contextlib.suppress(OSError):
                self.records.note_use(each.id)
        if python is not None:
            folder = self.records.folder(setup or python) / "python"
            mounts += self._environment(folder, writable=False)
        elif start.task.work.python.name:
            mounts.append(self._library(module=True))
        return tuple(mounts)

    def work_of(self, start: StartTask) -> Path | None:
        """Return the folder that the setup of a job has left, if it has one."""
        setup = start.environment("setup")
        return None if setup is None else self.records.folder(setup) / "work"

    def _environment(self, folder: Path, *, writable: bool) -> list[TaskMount]:
        own = TaskMount(
            source=str(folder),
            place=PLACE,
            writable=writable,
            ours=writable,
            variable="VIRTUAL_ENV",
            programs=True,
        )
        return [own, self._library()]

    def _library(self, *, module: bool = False) -> TaskMount:
        """Return `shoal` itself, for `shoal.log`; environments made here name it."""
        library = Path(shoal.__file__).parent
        place = f"{LIBRARY}/{library.name}"
        if not self._mounted:  # Beside it is nothing else that could be imported.
            library = self._linked
        return TaskMount(source=str(library), place=place, module=module)

    def _caches(self, start: StartTask) -> Iterator[TaskMount]:
        for each in start.environments:
            if each.kind == "cache" and each.name in CACHES:
                yield TaskMount(
                    source=str(self.records.folder(each.id)),
                    place=f"{CACHE_PLACE}/{each.name}",
                    writable=True,
                    ours=True,
                    variable=CACHES[each.name],
                    bytes_max=self._bytes_max,
                )

    # Making.

    async def _make(self, effect: MakeEnvironment) -> None:
        start, need, loop = effect.start, effect.need, asyncio.get_running_loop()
        attempt, began, size = start.attempt, loop.time(), 0
        failure: Outcome | None = None
        stopped = False
        folder: Path | None = None
        try:
            folder = await asyncio.to_thread(self.records.begin, need.id)
            async with asyncio.timeout(MAKE_S):
                failure = await self._filled(effect, folder)
            if failure is None:
                size = await asyncio.to_thread(self._kept, effect, folder)
        except asyncio.CancelledError:
            if self._closed:
                raise
            stopped = True
        except TimeoutError:
            failure = Outcome("timed-out", reason=f"over {MAKE_S / 60:.0f} minutes")
        except (ShoalError, OSError) as error:
            failure = Outcome("not-started", reason=str(error))
        except Exception as error:  # noqa: BLE001 - No task ends the node.
            traceback.print_exception(error)  # to the node's log
            what = type(error).__name__
            failure = Outcome("not-started", reason=f"an error of this worker: {what}")
        if folder is not None and (stopped or failure is not None):
            await asyncio.to_thread(self.records.discard, folder)
        del self._making[attempt]
        took_s = loop.time() - began
        if failure is not None:
            failure = msgspec.structs.replace(
                failure, reason=_explained(effect, failure)
            )
        self._feed(
            EnvironmentMade(attempt, need.id, size, took_s, failure, stopped=stopped)
        )

    def _kept(self, effect: MakeEnvironment, folder: Path) -> int:
        """Write the record of an environment; return its size."""
        need, size = effect.need, size_of(folder)
        record = EnvironmentRecord(
            folder=folder.name,
            kind=need.kind,
            owners=effect.start.owners,
            place=PLACE if self._mounted else str(self.records.root),
            bytes=size,
            mark=need.mark,
        )
        self.records.finish(need.id, record)
        return size

    async def _filled(self, effect: MakeEnvironment, folder: Path) -> Outcome | None:
        """Fill the folder of an environment; return how that failed, if it did."""
        match effect.need.kind:
            case "cache":
                return None
            case "python":
                return await self._python(effect, folder)
            case "setup":
                return await self._setup(effect, folder)

    async def _python(self, effect: MakeEnvironment, folder: Path) -> Outcome | None:
        start, need = effect.start, effect.start.task.work.python
        work, python = folder / "work", folder / "python"
        work.mkdir(mode=0o700)
        python.mkdir(mode=0o755)
        if (tree := tree_of(need.files)) is not None:
            await self._fetch(start, tree, work, need.digest)
        else:
            text = "".join(f"{line}\n" for line in need.packages)
            (work / "requirements.txt").write_text(text, encoding="utf-8")
        uv = find_uv()
        library = LIBRARY if self._mounted else str(self._linked.parent)
        mounts = [
            TaskMount(
                source=str(python),
                place=PLACE,
                writable=True,
                ours=True,
                variable="ENVIRONMENT",
            ),
            TaskMount(source=uv, place=UV, variable="UV"),
            *(each for each in self._caches(start) if BUILDER_CACHE in each.place),
        ]
        env = {
            "LIBRARY": library,
            "PYTHON_WANTED": need.version,
            "UV_LINK_MODE": "copy",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_INSTALL_DIR": f"{PLACE if self._mounted else python}/.pythons",
            "UV_PYTHON_DOWNLOADS": "automatic" if need.version else "never",
            "NO_COLOR": "1",
        }
        if not self._is_foreign(start):
            settings = _settings(work)
            env.update(settings)
            mounts += _local_folders(settings, work)
        order = self._order(effect, work, folder, mounts)
        work_ = Work(argv=("/bin/sh", "-c", SCRIPT), env=env)
        return await self._run(order, work_)

    async def _setup(self, effect: MakeEnvironment, folder: Path) -> Outcome | None:
        """Run the setup of a job in its code, on its own copy of the environment."""
        start, task = effect.start, effect.start.task
        work, python = folder / "work", folder / "python"
        work.mkdir(mode=0o700)
        mounts = [*self._caches(start), *self.loans.mounts_of(task.work)]
        if (tree := tree_of(task.work.workdir)) is not None:
            await self._fetch(start, tree, work)
        before: tuple[str, ...] = ()
        if (base := start.environment("python")) is not None:
            python.mkdir(mode=0o755)
            source = self.records.folder(base) / "python"
            mounts += self._environment(python, writable=True)
            mounts.append(TaskMount(source=str(source), place=BUILT_FROM))
            seen = [mount.seen_at(mounted=self._mounted) for mount in mounts]
            copied = seen[[mount.source for mount in mounts].index(str(python))]
            before = ("/bin/sh", "-c", COPY, seen[-1], copied)
        order = self._order(effect, work, folder, mounts, self._open_secrets(start))
        run = msgspec.structs.replace(task.work, argv=task.work.setup, setup=before)
        return await self._run(order, run)

    def _order(
        self,
        effect: MakeEnvironment,
        work: Path,
        folder: Path,
        mounts: list[TaskMount],
        secrets: dict[str, str] | None = None,
    ) -> RunOrder:
        start = effect.start
        return RunOrder(
            attempt=start.attempt,
            task=start.task,
            allocation=start.allocation,
            directory=work,
            counted=folder,
            mounts=tuple(mounts),
            foreign=self._is_foreign(start),
            network=effect.network,
            user=user_of(start.owners),
            secrets={} if secrets is None else secrets,
        )

    def _is_foreign(self, start: StartTask) -> bool:
        return set(start.owners) != {self._owner}

    async def _run(self, order: RunOrder, work: Work) -> Outcome | None:
        """Run a program in an environment that is not finished."""
        task = msgspec.structs.replace(order.task, work=work)
        order = msgspec.structs.replace(order, task=task)
        said = _Said()
        outcome = await self._driver.run(order, said)
        if outcome.kind == "exited" and outcome.exit_code == 0:
            return None
        reason = outcome.reason or said.text()
        return msgspec.structs.replace(outcome, reason=reason)

    async def _fetch(
        self, start: StartTask, tree: BlobId, work: Path, digest: str = ""
    ) -> None:
        """Put the files of a tree into a folder; they must be what `digest` says."""
        holder, sources = f"environment {start.attempt}", [start.attempt.scheduler]
        store = self._blobs.store
        try:
            found = await self._blobs.fetch_tree(tree, sources, holder, _untold)
            await asyncio.to_thread(unpacking.unpack, store, found, work)
        finally:
            store.release(holder)
        if digest and digest != await asyncio.to_thread(_digest, work):
            raise ShoalError(
                "the files of its environment are not those that it names",
                because="their digest is another one",
                hint="submit it again",
            )

    def _link_library(self) -> None:
        """Make `shoal` known to environments where nothing is mounted."""
        self._linked.parent.mkdir(mode=0o755, exist_ok=True)
        self._linked.unlink(missing_ok=True)
        self._linked.symlink_to(Path(shoal.__file__).parent)


def _untold(_fetched: int, _total: int) -> None:
    """Ignore the progress of a fetch: these files are small, or fetched again soon."""


def _digest(folder: Path) -> str:
    files: dict[str, bytes] = {}
    for name in ENVIRONMENT_FILES:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            files[name] = path.read_bytes()
    return digest_of(files)


def find_uv() -> str:
    """Return the path of uv: that of our installation, or one in PATH."""
    if importlib.util.find_spec("uv") is not None:
        own = Path(sysconfig.get_path("scripts"), "uv")
        if own.exists():
            return str(own)
    found = shutil.which("uv")
    if found is None:
        raise ShoalError(
            "this worker has no uv, which makes environments",
            because="it is neither installed with shoal nor in PATH",
            hint="pip install uv there",
        )
    return str(Path(found).resolve())


def _settings(work: Path) -> dict[str, str]:
    """Return the variables by which uv gets packages where this node's owner does.

    A settings file of that user is copied into the folder of the build.
    """
    found = {name: os.environ[name] for name in WORKERS_SETTINGS if name in os.environ}
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    file = Path(os.environ.get("UV_CONFIG_FILE") or Path(home) / "uv" / "uv.toml")
    with contextlib.suppress(OSError):
        (work / SETTINGS_FILE).write_bytes(file.read_bytes())
        found["UV_CONFIG_FILE"] = SETTINGS_FILE
    return found


def _local_folders(settings: Mapping[str, str], work: Path) -> list[TaskMount]:
    """Return mounts of the folders of this machine from which packages come."""
    texts = list(settings.values())
    with contextlib.suppress(OSError):
        texts.append((work / SETTINGS_FILE).read_text(encoding="utf-8"))
    paths = dict.fromkeys(_PATH.findall(" ".join(texts)))
    folders = [path for path in paths if Path(path).is_dir()]
    return [TaskMount(source=path, place=path) for path in folders]


def _explained(effect: MakeEnvironment, failure: Outcome) -> str:
    said = failure.reason or failure.kind
    if effect.need.kind != "setup":
        return f"its Python environment could not be built: {said}"
    if failure.kind != "exited":
        return f"its setup did not run: {said}"
    said = f": {failure.reason}" if failure.reason else ""
    return f"its setup exited with {failure.exit_code}{said}"


@final
class _Said:
    """The last lines that a program wrote, of either stream."""

    def __init__(self) -> None:
        self._end = b""

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Keep the latest bytes."""
        self._end = (self._end + data)[-LINES_BYTES_MAX:]

    def progressed(
        self,
        fraction: float | None,
        metrics: dict[str, float],
        lines: tuple[bytes, ...],
    ) -> None:
        """Ignore progress: it is not the task's own."""

    def text(self) -> str:
        """Return the last lines, in one."""
        text = cleaned(self._end.decode("utf-8", "replace"))
        lines = [" ".join(line.split()) for line in text.splitlines()]
        return " ".join([line for line in lines if line][-LINES_KEPT:])
