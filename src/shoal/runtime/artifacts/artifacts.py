"""Everything that travels with jobs: code, data, outputs, checkpoints and secrets.

The rest of a node uses artifacts only through `Artifacts`. A worker stages tasks and
stores their outputs. A scheduler holds the blobs its jobs need and fetches the outputs
of their tasks. Every member serves blobs to other members.

A job's code and data are held until `RETENTION_S` after its end is noticed; a
background loop checks every `TEND_S`.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import traceback
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, final

from shoal.blobs.store import BlobStore
from shoal.core.records.census import with_outputs
from shoal.errors import ShoalError, UsageError
from shoal.model.caches import TREE
from shoal.model.ids import BlobId, JobId, TaskId
from shoal.protocol.messages import ALL_OUTPUTS
from shoal.runtime.artifacts.blob_exchange import BlobExchange
from shoal.runtime.artifacts.cache_report import CacheReport
from shoal.runtime.artifacts.checkpoint_fetch import CheckpointFetch
from shoal.runtime.artifacts.kept_files import KeptFiles, holder_of
from shoal.runtime.artifacts.kept_stdout import KeptStdout
from shoal.runtime.artifacts.output_fetch import OutputFetch
from shoal.runtime.artifacts.secret_store import SecretStore
from shoal.runtime.artifacts.staging import TaskStaging, tree_of
from shoal.runtime.environments.maker import EnvironmentMaker
from shoal.runtime.verification.compare_command import CompareCommands
from shoal.runtime.verification.result_check import ResultCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shoal.core.artifacts.events import DropKept, TreeKind
    from shoal.core.events import Event, StartTask
    from shoal.core.records.records import JobRecord
    from shoal.core.scheduling.scheduler import Scheduler
    from shoal.drivers import Driver, RunOrder
    from shoal.model.ids import OwnerId
    from shoal.model.job import Job
    from shoal.net.identity.identity import Identity
    from shoal.protocol.messages import Outcome
    from shoal.runtime.environments.loans import Loans
    from shoal.runtime.home import Home
    from shoal.runtime.monitoring.output_log import OutputLog

TEND_S: Final = 60.0
RETENTION_S: Final = 3_600.0
"""Minimum time that code and data of a job are kept after its end."""

CACHE_BYTES_DEFAULT_MAX: Final = 100 << 30
SALT_BYTES: Final = 16
_SALT_TEXT: Final = b"shoal: the salt of this node's trees"


@final
class Artifacts:
    """The artifacts of one node."""

    def __init__(  # noqa: PLR0913 - each of these is a part that a host chooses
        self,
        home: Home,
        identity: Identity,
        outputs: OutputLog,
        *,
        owner: OwnerId,
        cache_bytes: int,
        environment_bytes: int,
        process: Driver | None,
        loans: Loans,
        feed: Callable[[Event], None],
        scheduler: Callable[[], Scheduler | None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Keep blobs in `home`; `scheduler` returns the machine once it exists.

        `process` runs the commands by which results are compared.
        """
        self._scheduler = scheduler
        self._outputs = outputs
        self.store = BlobStore(home.cache, cache_bytes)
        self.blobs = BlobExchange(self.store, feed, on_failure)
        self.secrets = SecretStore(home.path / "secrets.json", identity)
        # Others cannot guess it, and it survives restarts: packing the same files
        # again yields the same name.
        self.salt = hashlib.sha256(identity.sign(_SALT_TEXT)).digest()[:SALT_BYTES]
        self.checkpoints = CheckpointFetch(
            home.path / "checkpoints.json", identity.node, self.blobs, feed
        )
        self.warmth = CacheReport(home.path / "warm.json", self._is_whole, feed)
        self.staging = TaskStaging(
            self.blobs, identity, self.salt, self.warmth, feed, owner
        )
        if process is not None:
            self.staging.environments = EnvironmentMaker(
                home.environments,
                process,
                self.blobs,
                loans,
                feed,
                owner,
                self.staging.opened,
                environment_bytes,
            )
        compares = (
            None if process is None else CompareCommands(process, self.blobs, outputs)
        )
        self._checking = ResultCheck(self.blobs, outputs, compares)
        self.output_fetch = OutputFetch(
            identity.node, self.blobs, feed, outputs.note_pull, self._checking
        )
        self.kept_files = KeptFiles(self.blobs, feed)
        self._held: dict[JobId, float | None] = {}  # and when its end was noticed
        self._tending: asyncio.Task[None] | None = None  # set by `start`

    async def start(self) -> None:
        """Load what earlier runs left."""
        await asyncio.to_thread(self.store.open)
        await asyncio.to_thread(self.checkpoints.read)
        if (machine := self._scheduler()) is not None:
            records = list(machine.book.jobs.values())
            await asyncio.to_thread(self._hold_all, records)
            for job, log in machine.succession.others.logs.items():
                await asyncio.to_thread(self._hold_kept, job, log.named)
        self._tending = asyncio.get_running_loop().create_task(self._tend())

    async def close(self) -> None:
        """Stop; keep what was fetched so far."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        await self.output_fetch.close()
        await self.kept_files.close()
        await self.warmth.close()
        await self.checkpoints.close()
        await self.blobs.close()

    # As a worker.

    @property
    def environments(self) -> EnvironmentMaker | None:
        """What makes environments, if tasks run here."""
        return self.staging.environments

    def left(self, effect: StartTask) -> None:
        """Note that an attempt uses its environments no more."""
        if self.environments is not None:
            self.environments.used(effect)

    def stdout_of(self, order: RunOrder) -> AbstractContextManager[KeptStdout | None]:
        """Return a recorder of the task's stdout, if the task asks for one."""
        if not order.task.work.keep_stdout:
            return nullcontext()
        return KeptStdout(self.store)

    async def unload(
        self,
        driver: Driver,
        order: RunOrder,
        outcome: Outcome,
        stdout: KeptStdout | None = None,
    ) -> Outcome:
        """Store a task's outputs; return the outcome to report."""
        outcome = await self.staging.unload(driver, order, outcome)
        if stdout is not None:
            outcome = await self.staging.keep_stdout(order, outcome, stdout)
        return outcome

    # As a scheduler.

    def check(self, job: Job) -> None:
        """Hold a new job's blobs; raise `UsageError` if any is missing. Blocks."""
        names = dict.fromkeys(name for t in job.models() for name in t.work.secrets)
        known = set(self.secrets.names()) if names else set[str]()
        for name in names:
            if name not in known:
                raise UsageError(
                    f"there is no secret '{name}' on this node",
                    because="the job names it",
                    hint=f"set it first: shoal secret set {name}",
                )
        blobs = self._needed_by(job, strictly=True)
        self.store.hold(f"job {job.id}", blobs)
        self.store.sync(blobs)
        self._held[job.id] = None

    async def admit(self, job: Job) -> None:
        """Run `check` in a thread; report the job's code as cached here."""
        await asyncio.to_thread(self.check, job)
        for group in job.groups:
            workdir = group.tasks[0].work.workdir if group.tasks else ""
            if workdir.startswith(TREE):
                self.warmth.note(workdir)

    def outputs_of(self, record: JobRecord) -> dict[TaskId, BlobId]:
        """Return the output trees of a job's ended tasks."""
        machine = self._scheduler()
        assert machine is not None
        found: dict[TaskId, BlobId] = {}
        for task in with_outputs(machine.book, record.job):
            outcome = machine.book.tasks[task].outcome
            if outcome is not None and ALL_OUTPUTS in outcome.outputs:
                found[task] = BlobId(outcome.outputs[ALL_OUTPUTS])
        return found

    def size_of(self, job: Job) -> int:
        """Return how many bytes the outputs of a job have."""
        return self.store.held(f"results {job.id}")[1]

    async def discard(self, job: Job) -> int:
        """Drop what only a removed job needed; return how many bytes that freed."""
        self._held.pop(job.id, None)
        self.checkpoints.forget_job(job.id)
        holders = (f"job {job.id}", f"results {job.id}")
        return sum([await asyncio.to_thread(self.store.discard, h) for h in holders])

    def needed_by(self, job: Job) -> list[BlobId]:
        """Return a new job's blobs; raise `UsageError` if any is missing."""
        return self._needed_by(job, strictly=True)

    def _needed_by(self, job: Job, *, strictly: bool) -> list[BlobId]:
        found: dict[BlobId, None] = {}
        for folder, what in _trees_of(job):
            try:
                tree = tree_of(folder, what)
            except ShoalError as error:
                if strictly:
                    raise UsageError(
                        error.what, because=error.because, hint=error.hint
                    ) from None
                continue
            if tree is not None:
                found.update(dict.fromkeys(self._whole(tree, strictly=strictly)))
        for each in (each for group in job.groups for each in group.inputs):
            found.update(dict.fromkeys(self._whole(each.tree, strictly=strictly)))
        return list(found)

    def _whole(self, tree: BlobId, *, strictly: bool) -> list[BlobId]:
        listed = self.blobs.shelf.tree(tree)
        files = [] if isinstance(listed, str) else listed.files()
        if strictly and (isinstance(listed, str) or self.store.missing(files)):
            why = listed if isinstance(listed, str) else "some of its files are missing"
            raise UsageError(
                "files that the job needs are not here",
                because=why,
                hint="submit it again: `shoal submit` sends what is missing",
            )
        return [tree, *files]

    def _is_whole(self, tree: BlobId) -> bool:
        listed = self.blobs.shelf.tree(tree)
        return not isinstance(listed, str) and not self.store.missing(listed.files())

    def _hold_all(self, records: Iterable[JobRecord]) -> None:
        for record in records:
            job = record.job
            if record.state == "active":
                self.store.hold(f"job {job.id}", self._needed_by(job, strictly=False))
                self._held[job.id] = None
            for tree in self.outputs_of(record).values():
                blobs = self._whole(tree, strictly=False)
                self.store.hold(f"results {job.id}", blobs)

    # As a keeper.

    def drop_kept(self, effect: DropKept) -> None:
        """Hold nothing more of a job that was kept for another node."""
        self.kept_files.drop(effect)
        self.checkpoints.forget_job(effect.job)

    def _hold_kept(self, job: JobId, trees: dict[BlobId, TreeKind]) -> None:
        for tree, kind in trees.items():
            self.store.hold(holder_of(job, kind), self._whole(tree, strictly=False))

    async def _tend(self) -> None:
        """Periodically release blobs held for ended jobs."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self.warmth.look(self.store.evicted)
                await asyncio.sleep(TEND_S)
                await asyncio.to_thread(self.store.tend)
                self._let_go(loop.time())
            except Exception as error:  # noqa: BLE001 - It is tried again.
                traceback.print_exception(error)  # to the node's log
                await asyncio.sleep(TEND_S)

    def _let_go(self, now: float) -> None:
        machine = self._scheduler()
        if machine is None:
            return
        for each in machine.book.jobs.values():
            if each.state == "active":
                self._held.setdefault(each.job.id, None)  # It may have been taken up.
        for job, ended_at in list(self._held.items()):
            record = machine.book.jobs.get(job)
            is_kept = job in machine.succession.others.logs
            if is_kept or (record is not None and record.state == "active"):
                continue
            if ended_at is None:
                self._held[job] = now
            elif now - ended_at > RETENTION_S:
                del self._held[job]
                self.store.release(f"job {job}")
                self.checkpoints.forget_job(job)


def _trees_of(job: Job) -> dict[tuple[str, str], None]:
    """Return what the tasks of a job say of their trees, and what each is."""
    found: dict[tuple[str, str], None] = {}
    for task in job.models():
        found[task.work.workdir, "workdir"] = None
        found[task.work.python.files, "python"] = None
    return found


def needs_artifacts(job: Job) -> bool:
    """Whether a new job needs code, data or secrets; looks at one task per group."""
    works = (group.tasks[0].work for group in job.groups if group.tasks)
    has_any = any(w.workdir or w.secrets or w.python.files for w in works)
    return has_any or any(group.inputs for group in job.groups)


def default_cache_bytes(folder: Path) -> int:
    """Return the default cache size: a fifth of the disk, at most 100 GiB."""
    return min(CACHE_BYTES_DEFAULT_MAX, shutil.disk_usage(folder).total // 5)
