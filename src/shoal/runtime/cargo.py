"""All that travels with jobs: code and data, outputs, checkpoints and secrets.

The one room that the rest of a node talks to about it. As a worker it stages tasks and
keeps what they made; as a scheduler it holds what its jobs need, and fetches what they
made; as a member it serves others.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import traceback
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, final, get_args

import msgspec

from shoal.blobs.store import BlobStore
from shoal.core.events import Event, MessageReceived, StartTask
from shoal.errors import ShoalError, UsageError
from shoal.model.caches import TREE
from shoal.model.ids import BlobId, JobId, NodeId, TaskId
from shoal.protocol.messages import Assignment, Report, ToStore
from shoal.runtime.blobs import Blobs
from shoal.runtime.checking import Checking, unclaimed
from shoal.runtime.digests import ALL
from shoal.runtime.kept_stdout import KeptStdout
from shoal.runtime.provisions import Provisions
from shoal.runtime.pulling import Pulling
from shoal.runtime.secret_store import SecretStore
from shoal.runtime.staging import Staging, tree_of
from shoal.runtime.warmth import Warmth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shoal.core.jobs import JobRecord
    from shoal.core.scheduler import Scheduler
    from shoal.drivers import Driver, Order
    from shoal.model.ids import Attempt, OwnerId
    from shoal.model.job import Job, Task
    from shoal.net.base import Links
    from shoal.net.identity import Identity
    from shoal.protocol.messages import AnyMessage, Outcome
    from shoal.runtime.home import Home
    from shoal.runtime.outputs import Outputs

TEND_S: Final = 60.0
RETENTION_S: Final = 3_600.0
"""How long code and data of a job stay for sure when it has ended."""

CACHE_BYTES_DEFAULT_MAX: Final = 100 << 30
SALT_BYTES: Final = 16
_SALT_TEXT: Final = b"shoal: the salt of this node's trees"
_STORE_MESSAGES: Final = frozenset(get_args(ToStore))


@final
class Cargo:
    """The cargo of one node."""

    def __init__(  # noqa: PLR0913 - each of these is a part that a host chooses
        self,
        home: Home,
        identity: Identity,
        outputs: Outputs,
        *,
        owner: OwnerId,
        cache_bytes: int,
        feed: Callable[[Event], None],
        is_member: Callable[[NodeId], bool],
        scheduler: Callable[[], Scheduler | None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Keep blobs in `home`; `scheduler` returns the machine, once it is there."""
        self._owner = owner
        self._scheduler = scheduler
        self._identity = identity
        self._outputs = outputs
        self.store = BlobStore(home.cache, cache_bytes)
        self.blobs = Blobs(
            self.store,
            is_member=is_member,
            where=self._address,
            on_failure=on_failure,
        )
        self.secrets = SecretStore(home.path / "secrets.json", identity)
        # Not to be guessed by others, and the same in every life: what was packed
        # once has the same name when it is packed again.
        self.salt = hashlib.sha256(identity.sign(_SALT_TEXT)).digest()[:SALT_BYTES]
        self._provisions = Provisions(
            home.path / "checkpoints.json",
            identity.node,
            self.blobs,
            self.secrets,
            self._runs_on,
            self._is_own,
            lambda task: self.checking.verify_of(task) is not None,
        )
        self.warmth = Warmth(home.path / "warm.json", self._is_whole, feed)
        self._staging = Staging(
            self.blobs, identity, self._provisions, self.salt, self.warmth, feed, owner
        )
        self.checking = Checking(self.blobs, outputs, scheduler)
        self._feed = feed
        self._pulling = Pulling(self.blobs, feed, outputs.note_pull, self.checking)
        self._held: dict[JobId, float | None] = {}  # with when its end was noticed
        self._tending: asyncio.Task[None] | None = None  # once it has started
        outputs.saved = self._provisions.saved

    async def start(self, links: Links) -> None:
        """Find what earlier lives left, and begin to serve and to fetch."""
        await asyncio.to_thread(self.store.open)
        await asyncio.to_thread(self._provisions.read)
        if (machine := self._scheduler()) is not None:
            records = list(machine.book.jobs.values())
            await asyncio.to_thread(self._hold_all, records)
        self.blobs.start(links)
        self._tending = asyncio.get_running_loop().create_task(self._tend())

    async def close(self) -> None:
        """End; what was fetched so far is kept."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        await self._pulling.close()
        await self.warmth.close()
        await self._provisions.close()
        await self.blobs.close()

    # The network.

    def takes(self, peer: NodeId, message: AnyMessage) -> bool:
        """Whether a message is about cargo, so that the machine need not hear of it."""
        if type(message) in _STORE_MESSAGES:
            self.blobs.received(peer, message)  # type: ignore[arg-type]
            return True
        if type(message) is not Report:
            return False
        if message.outcome.outputs and self._keeps_back(peer, message):
            return True
        if message.outcome.digest:  # A claim: nothing of it was fetched.
            outcome = unclaimed(message.outcome)
            plain = msgspec.structs.replace(message, outcome=outcome)
            self._feed(MessageReceived(peer, plain))
            return True
        return False

    def lost(self, peer: NodeId) -> None:
        """Note that the link to a peer is down."""
        self.blobs.lost(peer)

    def dressed(self, peer: NodeId, message: AnyMessage) -> AnyMessage:
        """Return a message with the cargo that belongs to it."""
        if type(message) is Assignment:
            return self._provisions.dressed(peer, message)
        return message

    def _keeps_back(self, peer: NodeId, report: Report) -> bool:
        if self._tending is None:
            return True  # The store is not open yet, and the report will come again.
        machine = self._scheduler()
        run = machine.book.runs.get(report.attempt) if machine is not None else None
        if run is None or run.worker != peer:
            return False  # Not live: the machine has an answer to that.
        job = JobId(run.task.partition(".")[0])
        return self._pulling.keeps_back(peer, report, run.task, job)

    # As a worker.

    def order(self, driver: Driver, effect: StartTask) -> Order:
        """Return the order for a driver; raise `ShoalError` if there can be none."""
        return self._staging.order(driver, effect)

    def is_foreign(self, effect: StartTask) -> bool:
        """Whether a task runs in the name of somebody else than our owner."""
        return self._staging.is_foreign(effect)

    def given(self, effect: StartTask) -> StartTask:
        """Return an order of the machine with what its scheduler gives."""
        return self._staging.given(effect)

    async def fill(self, driver: Driver, effect: StartTask, order: Order) -> Order:
        """Return the order when the code and data of its task are there."""
        return await self._staging.fill(driver, effect, order)

    def stdout_of(self, order: Order) -> AbstractContextManager[KeptStdout | None]:
        """Return where all that a task writes to stdout is kept, if it is to be."""
        if not order.task.work.keep_stdout:
            return nullcontext()
        return KeptStdout(self.store)

    async def unload(
        self,
        driver: Driver,
        order: Order,
        outcome: Outcome,
        stdout: KeptStdout | None = None,
    ) -> Outcome:
        """Keep what a task made; return what to report."""
        outcome = await self._staging.unload(driver, order, outcome)
        if stdout is not None:
            outcome = await self._staging.keep_stdout(order, outcome, stdout)
        if order.attempt.scheduler != self._identity.node:
            return outcome
        return await self.checking.checked(order.attempt, order.task.id, outcome)

    # As a scheduler.

    def check(self, job: Job) -> None:
        """Hold what a new job needs; raise `UsageError` if it is not here. Blocks."""
        names = dict.fromkeys(name for t in job.tasks() for name in t.work.secrets)
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
        """Do as `check` does; what is here for the job is so for our worker, too."""
        await asyncio.to_thread(self.check, job)
        for group in job.groups:
            workdir = group.tasks[0].work.workdir if group.tasks else ""
            if workdir.startswith(TREE):
                self.warmth.note(workdir)

    def outputs_of(self, record: JobRecord) -> dict[TaskId, BlobId]:
        """Return the trees of outputs of a job's tasks that have ended."""
        machine = self._scheduler()
        assert machine is not None
        found: dict[TaskId, BlobId] = {}
        for task in record.job.tasks():
            outcome = machine.book.tasks[task.id].outcome
            if outcome is not None and ALL in outcome.outputs:
                found[task.id] = BlobId(outcome.outputs[ALL])
        return found

    def checkpoint_of(self, task: TaskId) -> BlobId | None:
        """Return the latest checkpoint of a task, if it is here."""
        return self._provisions.latest(task)

    def needed_by(self, job: Job) -> list[BlobId]:
        """Return the blobs of a new job; raise `UsageError` if not all are here."""
        return self._needed_by(job, strictly=True)

    def _needed_by(self, job: Job, *, strictly: bool) -> list[BlobId]:
        found: dict[BlobId, None] = {}
        for workdir in dict.fromkeys(task.work.workdir for task in job.tasks()):
            try:
                tree = tree_of(workdir)
            except ShoalError as error:
                if strictly:
                    raise UsageError(
                        error.what, because=error.because, hint=error.hint
                    ) from None
                continue
            if tree is not None:
                found.update(dict.fromkeys(self._whole(tree, strictly=strictly)))
        return list(found)

    def _whole(self, tree: BlobId, *, strictly: bool) -> list[BlobId]:
        listed = self.blobs.shelf.tree(tree)
        files = [] if isinstance(listed, str) else listed.files()
        if strictly and (isinstance(listed, str) or self.store.missing(files)):
            why = listed if isinstance(listed, str) else "some of its files are missing"
            raise UsageError(
                "the workdir of the job is not here",
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

    async def _tend(self) -> None:
        """Let go, now and then, of what jobs that have ended held."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self.warmth.look(self.store.evicted)
                await asyncio.sleep(TEND_S)
                await asyncio.to_thread(self.store.tend)
                self._let_go(loop.time())
            except Exception as error:  # noqa: BLE001 - It is tried again.
                traceback.print_exception(error)  # Into the node's log.
                await asyncio.sleep(TEND_S)

    def _let_go(self, now: float) -> None:
        machine = self._scheduler()
        if machine is None:
            return
        for job, ended_at in list(self._held.items()):
            record = machine.book.jobs.get(job)
            if record is not None and record.state == "active":
                continue
            if ended_at is None:
                self._held[job] = now
            elif now - ended_at > RETENTION_S:
                del self._held[job]
                self.store.release(f"job {job}")
                tasks = () if record is None else (t.id for t in record.job.tasks())
                self._provisions.forget(tasks)

    def _runs_on(self, attempt: Attempt) -> NodeId | None:
        machine = self._scheduler()
        run = machine.book.runs.get(attempt) if machine is not None else None
        return None if run is None else run.worker

    def _is_own(self, task: Task) -> bool:
        """Whether the job of a task is of this node's own owner."""
        machine = self._scheduler()
        record = machine.book.jobs.get(task.job) if machine is not None else None
        return record is not None and record.job.owner == self._owner

    def _address(self, node: NodeId) -> tuple[str, ...]:
        machine = self._scheduler()
        found = machine.views.address(node) if machine is not None else ""
        return (found,) if found else ()


def needs_cargo(job: Job) -> bool:
    """Whether there is anything to check about a new job, by a look at each group."""
    works = (group.tasks[0].work for group in job.groups if group.tasks)
    return any(work.workdir or work.secrets for work in works)


def default_cache_bytes(folder: Path) -> int:
    """Return how large a cache may be where nobody said: a fifth of the disk."""
    return min(CACHE_BYTES_DEFAULT_MAX, shutil.disk_usage(folder).total // 5)
