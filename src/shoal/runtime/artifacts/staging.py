"""Fetch what a task needs before it runs, and store its outputs afterwards.

`stage` fills the work directory, `prepare` builds the run order, and `unload` and
`keep_stdout` store outputs. A worker trusts the scheduler about which blobs a task
needs, but not their content: trees are validated and pieces checked by hash. Staging
may take `STAGING_S`; outputs stay held for `REPORT_HELD_S`. Every failure becomes a
readable reason.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.blobs import packing, trees, unpacking
from shoal.core.events import Event, TaskSaved, TaskStaged
from shoal.drivers import RunOrder, TaskMount
from shoal.errors import ShoalError, UsageError
from shoal.model.caches import IMAGE, TREE
from shoal.model.ids import BlobId
from shoal.model.spec.globs import Globs
from shoal.model.spec.verification import STDOUT
from shoal.net import multiaddr
from shoal.protocol.blob_hashing import size_of
from shoal.protocol.messages import ALL_OUTPUTS
from shoal.runtime.artifacts.sealing import secret_purpose, unseal
from shoal.runtime.environments.users import user_of
from shoal.runtime.leasing import recipes
from shoal.runtime.leasing.task_calls import TaskCalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.blobs.trees import Tree
    from shoal.core.events import StartTask
    from shoal.drivers import Calls, Driver
    from shoal.model.ids import Attempt, NodeId, OwnerId
    from shoal.model.job import Task
    from shoal.net.identity.identity import Identity
    from shoal.protocol.messages import Outcome
    from shoal.runtime.artifacts.blob_exchange import BlobExchange
    from shoal.runtime.artifacts.cache_report import CacheReport
    from shoal.runtime.artifacts.kept_stdout import KeptStdout
    from shoal.runtime.environments.maker import EnvironmentMaker

STAGING_S: Final = 3_600.0
"""Most time that staging may take, even while data still arrives."""

OUTPUTS_BYTES_MAX: Final = 64 << 30
REPORT_HELD_S: Final = 3_600.0
"""How long a worker holds outputs that the scheduler has not fetched."""


def tree_of(folder: str, what: str = "workdir") -> BlobId | None:
    """Return the tree of a folder that travels with a task; None if there is none."""
    if not folder:
        return None
    name = folder.removeprefix(TREE)
    if not folder.startswith(TREE) or size_of(name) is None:
        raise ShoalError(
            f"the {what} '{folder[:80]}' was not packed",
            because="a worker cannot read files of the submitter's machine",
            hint="submit with `shoal submit` or `shoal run`, which pack it",
        )
    return BlobId(name)


@final
class TaskStaging:
    """A worker's handling of files before and after the driver runs."""

    def __init__(
        self,
        blobs: BlobExchange,
        identity: Identity,
        salt: bytes,
        warmth: CacheReport,
        feed: Callable[[Event], None],
        owner: OwnerId,
    ) -> None:
        """Treat tasks of owners other than `owner` as foreign."""
        self._owner = owner
        self._warmth = warmth
        self._blobs = blobs
        self._identity = identity
        self._salt = salt
        self._feed = feed
        self.environments: EnvironmentMaker | None = None  # if tasks run here

    @property
    def node(self) -> NodeId:
        """The node whose tasks these are."""
        return self._identity.node

    async def stage(self, driver: Driver, start: StartTask) -> None:
        """Fill the work directory with code, inputs and checkpoint, in this order.

        Raises `ShoalError` if the attempt cannot start. Checks that need no network
        come first, so a task that cannot run downloads nothing. If staging fails,
        fetched blobs stay in the cache but are no longer held.
        """
        self._checked(start)
        try:
            await self._staged(driver, start)
        except BaseException:
            self._blobs.store.release(holder_of(start.attempt))
            raise

    def prepare(self, driver: Driver, effect: StartTask, mail: Calls) -> RunOrder:
        """Return the run order of a staged attempt.

        Raises `ShoalError` if the attempt cannot start.
        """
        task, secrets = self._checked(effect)
        maker, mounts, user = self.environments, tuple[TaskMount, ...](), 0
        if maker is not None:
            mounts = maker.mounts_of(effect)
            user = user_of(effect.owners) if any(m.ours for m in mounts) else 0
        if effect.environment("setup"):
            work = msgspec.structs.replace(task.work, setup=())  # It has run.
            task = msgspec.structs.replace(task, work=work)
        return RunOrder(
            attempt=effect.attempt,
            task=task,
            allocation=effect.allocation,
            directory=driver.prepare(effect.attempt) if effect.is_staged else None,
            addresses=tuple(_host(place) for place in effect.places),
            secrets=secrets,
            checkpoint=effect.checkpoint_path if effect.checkpoint else "",
            calls=self._calls(driver, effect, mail),
            foreign=self.is_foreign(effect),
            network=effect.network,
            mounts=mounts,
            user=user,
        )

    def is_foreign(self, effect: StartTask) -> bool:
        """Whether a task runs for an owner other than this node's."""
        return set(effect.owners) != {self._owner}

    def _checked(self, effect: StartTask) -> tuple[Task, dict[str, str]]:
        """Return the resolved task and its secrets; raise if it cannot run."""
        Globs(effect.task.work.outputs)  # Raises on a bad pattern.
        return recipes.resolved(effect.task), self.opened(effect)

    async def _staged(self, driver: Driver, effect: StartTask) -> None:
        tree = tree_of(effect.task.work.workdir)
        directory = driver.prepare(effect.attempt)
        if next(directory.iterdir(), None) is not None:
            raise ShoalError(
                "its work directory is not empty",
                because="an attempt of the same id was here, and may have left links",
            )
        try:
            async with asyncio.timeout(STAGING_S):
                await self._fill(directory, tree, effect)
        except TimeoutError:
            raise ShoalError(
                f"its code and data did not come within {STAGING_S / 60:.0f} minutes"
            ) from None

    async def _fill(
        self, directory: Path, tree: BlobId | None, effect: StartTask
    ) -> None:
        sources = [n for n in (effect.attempt.scheduler,) if n != self.node]

        def told(fetched: int, total: int) -> None:
            if total:
                self._feed(TaskStaged(effect.attempt, fetched, total))

        store, holder = self._blobs.store, holder_of(effect.attempt)

        async def lay(tree: BlobId, what: str, put: Callable[[Tree], None]) -> None:
            try:
                found = await self._blobs.fetch_tree(tree, sources, holder, told)
                await asyncio.to_thread(put, found)
            except (ShoalError, OSError) as error:
                raise ShoalError(f"{what} cannot be had: {error}") from None

        def lay_over(tree: Tree, folder: str = "") -> None:
            unpacking.lay_over(store, tree, directory, folder)

        prepared = None
        if self.environments is not None:
            prepared = self.environments.work_of(effect)
        if prepared is not None:
            await _copy_all(prepared, directory)
        elif tree is not None:
            await lay(
                tree, "its workdir", lambda t: unpacking.unpack(store, t, directory)
            )
            self._warmth.note(effect.task.work.workdir)
        for each in effect.inputs:
            put = functools.partial(lay_over, folder=each.folder)
            await lay(each.tree, "the outputs of a task that it needs", put)
        if effect.checkpoint:
            await lay(effect.checkpoint, "its checkpoint", lay_over)

    def opened(self, effect: StartTask) -> dict[str, str]:
        """Return the secrets of an attempt; raise if one cannot be opened."""
        values: dict[str, str] = {}
        for name, sealed in effect.secrets.items():
            value = unseal(self._identity, secret_purpose(effect.attempt, name), sealed)
            if value is None:
                raise ShoalError(
                    f"secret '{name}' cannot be opened",
                    because="it was not sealed to this worker, for this attempt",
                )
            values[name] = value.decode("utf-8", "replace")
        return values

    def _calls(self, driver: Driver, effect: StartTask, mail: Calls) -> TaskCalls:
        async def save(path: str, directory: Path) -> BlobId:
            holder = f"{holder_of(effect.attempt)} checkpoint"
            tree = await asyncio.to_thread(self._save, path, directory, holder)
            self._feed(TaskSaved(effect.attempt, tree, path))
            return tree

        known = (effect.attempt.scheduler, *effect.gang)
        return TaskCalls(
            self._blobs,
            self.node,
            holder_of(effect.attempt),
            tuple(dict.fromkeys(known)),
            lambda: driver.prepare(effect.attempt),
            save,
            mail,
        )

    def _save(self, path: str, directory: Path, holder: str) -> BlobId:
        """Store a checkpoint in place of the attempt's previous one."""
        draft = f"{holder} new"
        store = self._blobs.store
        try:
            packed = packing.pack_path(
                directory, path, lambda file: store.put_file(file, draft)
            )
            tree = trees.make(self._salt, packed.entries)
            blob = store.put(trees.encode(tree))
            store.release(holder)
            store.hold(holder, (blob, *tree.files()))
        finally:
            store.release(draft)
        return blob

    async def unload(
        self, driver: Driver, order: RunOrder, outcome: Outcome
    ) -> Outcome:
        """Store an ended task's outputs; return the outcome to report."""
        attempt, work = order.attempt, order.task.work
        if work.image and outcome.exit_code is not None:
            self._warmth.note(f"{IMAGE}{work.image}")  # It ran, so the image is here.
        if not self._has_artifacts(order):
            return outcome
        loop, store = asyncio.get_running_loop(), self._blobs.store
        for holder in (holder_of(attempt), f"{holder_of(attempt)} checkpoint"):
            loop.call_later(REPORT_HELD_S, store.release, holder)
        if not work.outputs or outcome.exit_code is None:
            return outcome
        directory = driver.prepare(attempt)
        holder = (
            results_of(order) if attempt.scheduler == self.node else holder_of(attempt)
        )
        try:
            tree, notes = await asyncio.to_thread(
                self._gather, directory, order, holder
            )
        except (ShoalError, OSError) as error:
            if outcome.exit_code:
                return outcome  # Why it failed comes before what became of its files.
            reason = f"its outputs could not be kept: {error}"
            return msgspec.structs.replace(outcome, kind="lost", reason=reason)
        if outcome.exit_code:
            notes = ()  # Why it failed matters, and not what is missing because of it.
        reason = "; ".join(text for text in (outcome.reason, *notes) if text)
        return msgspec.structs.replace(
            outcome, outputs={ALL_OUTPUTS: tree}, reason=reason
        )

    async def keep_stdout(
        self, order: RunOrder, outcome: Outcome, kept: KeptStdout
    ) -> Outcome:
        """Add the task's stdout to the outcome as a separate output."""
        if outcome.exit_code is None:
            return outcome
        attempt, store = order.attempt, self._blobs.store
        is_ours = attempt.scheduler == self.node
        holder = results_of(order) if is_ours else holder_of(attempt)
        loop = asyncio.get_running_loop()
        loop.call_later(REPORT_HELD_S, store.release, holder_of(attempt))
        try:
            tree = await asyncio.to_thread(self._put_stdout, kept, holder)
        except (ShoalError, OSError) as error:
            if outcome.exit_code:
                return outcome
            reason = f"its stdout could not be kept: {error}"
            return msgspec.structs.replace(outcome, kind="lost", reason=reason)
        if tree is None:
            return outcome
        outputs = {**outcome.outputs, STDOUT: tree}
        return msgspec.structs.replace(outcome, outputs=outputs)

    def _put_stdout(self, kept: KeptStdout, holder: str) -> BlobId | None:
        store, stdout = self._blobs.store, kept.finish(holder)
        if stdout is None:
            return None
        entry = trees.TreeEntry(STDOUT, "file", stdout)
        blob = store.put(trees.encode(trees.make(self._salt, [entry])))
        store.hold(holder, (blob,))
        return blob

    def _has_artifacts(self, order: RunOrder) -> bool:
        """Whether an attempt may hold blobs: most tasks never touch any."""
        calls = order.calls
        used = not isinstance(calls, TaskCalls) or calls.used
        return used or order.directory is not None or bool(order.task.work.outputs)

    def _gather(
        self, directory: Path, order: RunOrder, holder: str
    ) -> tuple[BlobId, tuple[str, ...]]:
        store = self._blobs.store
        # In a gang it is usually the first member that saves the model.
        may_lack = bool(order.addresses) and order.task.index > 0
        packed = packing.pack_outputs(
            directory,
            order.task.work.outputs,
            lambda file: store.put_file(file, holder),
            min(OUTPUTS_BYTES_MAX, store.bytes_max),
            may_lack=may_lack,
        )
        tree = trees.make(self._salt, packed.entries)
        blob = store.put(trees.encode(tree))
        store.hold(holder, (blob,))
        return blob, packed.notes


async def _copy_all(source: Path, directory: Path) -> None:
    """Copy what a setup has left; links stay links, and nothing is followed.

    Nobody writes to it any more: only finished setups are copied.
    """
    copies = await asyncio.create_subprocess_exec(
        *("cp", "-dR", "--preserve=mode,timestamps,links", "--reflink=auto", "--"),
        *(f"{source}/.", str(directory)),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await copies.communicate()
    except asyncio.CancelledError:
        copies.kill()
        await copies.wait()
        raise
    if copies.returncode:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1].rpartition(": ")[2] if lines else "cp failed"
        raise ShoalError(f"what its setup made cannot be copied: {why}")


def _host(place: str) -> str:
    """Return the host of a peer's address; empty if it is malformed."""
    try:
        return multiaddr.parse(place).host
    except UsageError:
        return ""


def holder_of(attempt: Attempt) -> str:
    """Return the name under which an attempt holds blobs."""
    return f"attempt {attempt}"


def results_of(order: RunOrder) -> str:
    """Return the name under which a job's results are held."""
    return f"results {order.task.job}"
