"""What a scheduler gives with an assignment: sealed secrets, and the last checkpoint.

The machine knows neither. They are added when an assignment leaves, so secrets are
never in the journal, and a checkpoint is always the latest that has been fetched.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.events import StartTask
from shoal.errors import ShoalError
from shoal.model.ids import BlobId, JobId, TaskId
from shoal.protocol.messages import Assignment, Checkpoint
from shoal.runtime.membership import write_private
from shoal.runtime.sealing import seal, secret_purpose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from shoal.model.ids import Attempt, NodeId
    from shoal.model.job import Task
    from shoal.runtime.blobs import Blobs
    from shoal.runtime.secret_store import SecretStore

KEPT_MAX: Final = 10_000


class Kept(msgspec.Struct, frozen=True):
    """The latest checkpoint of a task that is here."""

    task: TaskId
    tree: BlobId
    path: str


@final
class Provisions:
    """Checkpoints of the tasks of this node's jobs, and secrets of its user."""

    def __init__(
        self,
        file: Path,
        node: NodeId,
        blobs: Blobs,
        secrets: SecretStore,
        where: Callable[[Attempt], NodeId | None],
        is_own: Callable[[Task], bool],
        is_verified: Callable[[TaskId], bool] = lambda _: False,
    ) -> None:
        """Fetch checkpoints from `where` an attempt runs, if it is live.

        `is_own` says whether a task is of a job of this node's own owner. A task that
        `is_verified` never goes on from what another worker left: two results that
        begin with the same lie would agree.
        """
        self._file = file
        self._node = node
        self._blobs = blobs
        self._secrets = secrets
        self._where = where
        self._is_own = is_own
        self._is_verified = is_verified
        self._kept: dict[TaskId, Kept] = {}
        self._newest: dict[TaskId, tuple[Attempt, int]] = {}
        self._fetching: dict[TaskId, asyncio.Task[None]] = {}

    def read(self) -> None:
        """Find the checkpoints that an earlier life has kept. Blocks."""
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=list[Kept])
        except (FileNotFoundError, msgspec.MsgspecError):
            return  # Tasks begin anew then, as they would without checkpoints.
        for each in kept:
            if self._hold(each):
                self._kept[each.task] = each

    def latest(self, task: TaskId) -> BlobId | None:
        """Return the latest checkpoint of a task that is here."""
        kept = self._kept.get(task)
        return None if kept is None else kept.tree

    # Giving.

    def given(self, effect: StartTask) -> StartTask:
        """Return an order of our own scheduler to our own worker, with provisions."""
        found = self._of(effect, self._node)
        return msgspec.structs.replace(effect, **found) if found else effect

    def dressed(self, peer: NodeId, assignment: Assignment) -> Assignment:
        """Return an assignment with all that its worker needs."""
        found = self._of(assignment, peer)
        return msgspec.structs.replace(assignment, **found) if found else assignment

    def _of(self, to: StartTask | Assignment, worker: NodeId) -> dict[str, object]:
        found: dict[str, object] = {}
        if (kept := self._kept.get(to.task.id)) is not None:
            found["checkpoint"] = kept.tree
            found["checkpoint_path"] = kept.path
        if to.task.work.secrets:
            found["secrets"] = dict(self._sealed(to, worker))
        return found

    def _sealed(
        self, to: StartTask | Assignment, worker: NodeId
    ) -> Iterator[tuple[str, bytes]]:
        """Return the secrets of a task: this is the one place that hands them out.

        However work got here, that of another owner gets none. The worker says so.
        """
        for name in to.task.work.secrets if self._is_own(to.task) else ():
            try:
                value = self._secrets.get(name)
            except ShoalError:
                continue  # The worker says that it was not given this one.
            if value is not None:
                purpose = secret_purpose(to.attempt, name)
                yield name, seal(worker, purpose, value.encode())

    # Keeping.

    def saved(self, task: Task, told: Checkpoint) -> None:
        """Fetch a checkpoint that a live attempt of ours has left."""
        if self._is_verified(task.id):
            return
        order = (told.attempt, told.seq)
        if order <= self._newest.get(task.id, (told.attempt, -1)):
            return
        self._newest[task.id] = order
        if (before := self._fetching.pop(task.id, None)) is not None:
            before.cancel()  # It is stale, and the pieces that it has are kept.
        loop = asyncio.get_running_loop()
        self._fetching[task.id] = loop.create_task(self._fetch(task.id, told))

    async def _fetch(self, task: TaskId, told: Checkpoint) -> None:
        worker = self._where(told.attempt)
        sources = [] if worker is None or worker == self._node else [worker]
        draft = f"checkpoint {task} new"
        try:
            await self._blobs.fetch_tree(told.tree, sources, draft)
            kept = Kept(task, told.tree, told.path)
            if await asyncio.to_thread(self._hold, kept):
                self._kept[task] = kept
                await asyncio.to_thread(self._write)
        except (ShoalError, OSError):
            pass  # There will be another, or the last one serves.
        finally:
            self._blobs.store.release(draft)
            if self._newest.get(task) == (told.attempt, told.seq):
                self._fetching.pop(task, None)

    def forget(self, tasks: Iterable[TaskId]) -> None:
        """Drop the checkpoints of tasks that have ended."""
        gone = [task for task in tasks if task in self._kept]
        for task in gone:
            del self._kept[task]
            self._newest.pop(task, None)
            self._blobs.store.release(f"checkpoint {task}")
        if gone:
            self._write()

    def jobs(self) -> set[JobId]:
        """Return the jobs that have checkpoints here."""
        return {JobId(task.partition(".")[0]) for task in self._kept}

    async def close(self) -> None:
        """Fetch nothing any more."""
        fetching = list(self._fetching.values())
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)

    def _hold(self, kept: Kept) -> bool:
        found = self._blobs.shelf.tree(kept.tree)
        if isinstance(found, str):
            return False
        holder = f"checkpoint {kept.task}"
        self._blobs.store.release(holder)
        self._blobs.store.hold(holder, (kept.tree, *found.files()))
        return True

    def _write(self) -> None:
        known = list(self._kept.values())[-KEPT_MAX:]
        write_private(self._file, msgspec.json.encode(known))
