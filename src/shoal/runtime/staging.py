"""Before a task: fetches what it needs. After it: keeps what it made.

A worker believes the scheduler about what a task needs, and nobody about what is in it:
trees are checked, pieces are proved. All that can go wrong becomes a reason for people.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.blobs import packing, trees, unpacking
from shoal.blobs.hashing import size_of
from shoal.core.events import Event, TaskSaved, TaskStaged
from shoal.drivers import Order
from shoal.errors import ShoalError
from shoal.model.caches import IMAGE, TREE
from shoal.model.globs import Globs
from shoal.model.ids import BlobId
from shoal.model.verification import STDOUT
from shoal.runtime import recipes
from shoal.runtime.digests import ALL
from shoal.runtime.sealing import secret_purpose, unseal
from shoal.runtime.task_calls import TaskCalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.core.events import StartTask
    from shoal.drivers import Driver
    from shoal.model.ids import Attempt, NodeId, OwnerId
    from shoal.net.identity import Identity
    from shoal.protocol.messages import Outcome
    from shoal.runtime.blobs import Blobs
    from shoal.runtime.kept_stdout import KeptStdout
    from shoal.runtime.provisions import Provisions
    from shoal.runtime.warmth import Warmth

STAGING_S: Final = 3_600.0
"""How long a task may wait for its code and data, even if some of it comes."""

OUTPUTS_BYTES_MAX: Final = 64 << 30
REPORT_HELD_S: Final = 3_600.0
"""How long a worker keeps outputs for a scheduler that does not fetch them."""


def tree_of(workdir: str) -> BlobId | None:
    """Return the tree that a task begins with; None if it begins in an empty folder."""
    if not workdir:
        return None
    name = workdir.removeprefix(TREE)
    if not workdir.startswith(TREE) or size_of(name) is None:
        raise ShoalError(
            f"the workdir '{workdir[:80]}' was not packed",
            because="a worker cannot read folders of the submitter's machine",
            hint="submit with `shoal submit` or `shoal run`, which pack it",
        )
    return BlobId(name)


@final
class Staging:
    """What a worker does around its driver."""

    def __init__(
        self,
        blobs: Blobs,
        identity: Identity,
        provisions: Provisions,
        salt: bytes,
        warmth: Warmth,
        feed: Callable[[Event], None],
        owner: OwnerId,
    ) -> None:
        """Serve a node of `owner`: whatever runs for another is foreign."""
        self._owner = owner
        self._warmth = warmth
        self._blobs = blobs
        self._identity = identity
        self._provisions = provisions
        self._salt = salt
        self._feed = feed

    @property
    def _node(self) -> NodeId:
        return self._identity.node

    def given(self, effect: StartTask) -> StartTask:
        """Return an order of the machine with what its scheduler gives."""
        if effect.attempt.scheduler == self._node:
            return self._provisions.given(effect)
        return effect

    def order(self, driver: Driver, effect: StartTask) -> Order:
        """Return the order for a driver; raise `ShoalError` if there can be none."""
        Globs(effect.task.work.outputs)  # Raises before anything has run in vain.
        return Order(
            attempt=effect.attempt,
            task=recipes.resolved(effect.task),
            allocation=effect.allocation,
            secrets=self._opened(effect),
            network=effect.network,
            calls=self._calls(driver, effect),
            foreign=self.is_foreign(effect),
        )

    def is_foreign(self, effect: StartTask) -> bool:
        """Whether a task runs in the name of somebody else than our owner."""
        return set(effect.owners) != {self._owner}

    async def fill(self, driver: Driver, effect: StartTask, order: Order) -> Order:
        """Return the order when its code and data are there; raise if they cannot be.

        Cancelling this leaves what was fetched so far, for the next who needs it.
        """
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
        checkpoint = effect.checkpoint_path if effect.checkpoint else ""
        return msgspec.structs.replace(
            order, directory=directory, checkpoint=checkpoint
        )

    async def _fill(
        self, directory: Path, tree: BlobId | None, effect: StartTask
    ) -> None:
        sources = [n for n in (effect.attempt.scheduler,) if n != self._node]

        def told(fetched: int, total: int) -> None:
            if total:
                self._feed(TaskStaged(effect.attempt, fetched, total))

        store, holder = self._blobs.store, holder_of(effect.attempt)
        if tree is not None:
            try:
                found = await self._blobs.fetch_tree(tree, sources, holder, told)
                self._warmth.note(effect.task.work.workdir)
                await asyncio.to_thread(unpacking.unpack, store, found, directory)
            except (ShoalError, OSError) as error:
                raise ShoalError(f"its workdir cannot be had: {error}") from None
        if effect.checkpoint:
            saved = effect.checkpoint
            try:
                found = await self._blobs.fetch_tree(saved, sources, holder, told)
                await asyncio.to_thread(unpacking.lay_over, store, found, directory)
            except (ShoalError, OSError) as error:
                raise ShoalError(f"its checkpoint cannot be had: {error}") from None

    def _opened(self, effect: StartTask) -> dict[str, str]:
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

    def _calls(self, driver: Driver, effect: StartTask) -> TaskCalls:
        async def save(path: str, directory: Path) -> BlobId:
            holder = f"{holder_of(effect.attempt)} checkpoint"
            tree = await asyncio.to_thread(self._save, path, directory, holder)
            self._feed(TaskSaved(effect.attempt, tree, path))
            return tree

        known = (effect.attempt.scheduler, *effect.gang)
        return TaskCalls(
            self._blobs,
            self._node,
            holder_of(effect.attempt),
            tuple(dict.fromkeys(known)),
            lambda: driver.prepare(effect.attempt),
            save,
        )

    def _save(self, path: str, directory: Path, holder: str) -> BlobId:
        """Keep a checkpoint, and only the latest of an attempt."""
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

    async def unload(self, driver: Driver, order: Order, outcome: Outcome) -> Outcome:
        """Keep the outputs of a task that has ended; return what to report."""
        attempt, work = order.attempt, order.task.work
        if work.image and outcome.exit_code is not None:
            self._warmth.note(f"{IMAGE}{work.image}")  # Or nothing could have run.
        if not self._has_cargo(order):
            return outcome
        loop, store = asyncio.get_running_loop(), self._blobs.store
        for holder in (holder_of(attempt), f"{holder_of(attempt)} checkpoint"):
            loop.call_later(REPORT_HELD_S, store.release, holder)
        if not work.outputs or outcome.exit_code is None:
            return outcome
        directory = driver.prepare(attempt)
        holder = (
            results_of(order) if attempt.scheduler == self._node else holder_of(attempt)
        )
        try:
            tree, notes = await asyncio.to_thread(
                self._gather, directory, work.outputs, holder
            )
        except (ShoalError, OSError) as error:
            reason = f"its outputs could not be kept: {error}"
            return msgspec.structs.replace(outcome, kind="lost", reason=reason)
        reason = "; ".join(text for text in (outcome.reason, *notes) if text)
        return msgspec.structs.replace(outcome, outputs={ALL: tree}, reason=reason)

    async def keep_stdout(
        self, order: Order, outcome: Outcome, kept: KeptStdout
    ) -> Outcome:
        """Make all that a task wrote to stdout an output of its own."""
        if outcome.exit_code is None:
            return outcome
        attempt, store = order.attempt, self._blobs.store
        is_ours = attempt.scheduler == self._node
        holder = results_of(order) if is_ours else holder_of(attempt)
        loop = asyncio.get_running_loop()
        loop.call_later(REPORT_HELD_S, store.release, holder_of(attempt))
        try:
            tree = await asyncio.to_thread(self._put_stdout, kept, holder)
        except (ShoalError, OSError) as error:
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
        entry = trees.Entry(STDOUT, "file", stdout)
        blob = store.put(trees.encode(trees.make(self._salt, [entry])))
        store.hold(holder, (blob,))
        return blob

    def _has_cargo(self, order: Order) -> bool:
        """Whether an attempt may hold blobs: most tasks never touch any."""
        calls = order.calls
        used = not isinstance(calls, TaskCalls) or calls.used
        return used or order.directory is not None or bool(order.task.work.outputs)

    def _gather(
        self, directory: Path, patterns: tuple[str, ...], holder: str
    ) -> tuple[BlobId, tuple[str, ...]]:
        store = self._blobs.store
        packed = packing.pack_outputs(
            directory,
            patterns,
            lambda file: store.put_file(file, holder),
            min(OUTPUTS_BYTES_MAX, store.bytes_max),
        )
        tree = trees.make(self._salt, packed.entries)
        blob = store.put(trees.encode(tree))
        store.hold(holder, (blob,))
        return blob, packed.notes


def holder_of(attempt: Attempt) -> str:
    """Return in whose name an attempt holds blobs."""
    return f"attempt {attempt}"


def results_of(order: Order) -> str:
    """Return in whose name the results of a job are held."""
    return f"results {order.task.job}"
