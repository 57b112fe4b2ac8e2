"""The calls about blobs, outputs and secrets.

The node's user may have all of it but the values of secrets. Others have what belongs
to their owner.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, final

from shoal.api import callers
from shoal.api import shoal_pb2 as pb
from shoal.api.belongings import Belongings, salt_for
from shoal.blobs import trees
from shoal.blobs.hashing import size_of
from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.model.ids import BlobId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.blobs.store import BlobStore, Draft
    from shoal.core.jobs import JobRecord, TaskRecord
    from shoal.model.ids import OwnerId
    from shoal.model.job import Job
    from shoal.runtime.cargo import Cargo

PART_BYTES: Final = 1 << 20
SMALL_AT_ONCE: Final = 64
UPLOAD_HELD_S: Final = 3_600.0
"""How long what was sent stays for the job that is about to need it."""


class CargoCalls(ABC):
    """One method for each call."""

    def __init__(self, cargo: Cargo, own: OwnerId) -> None:
        """Answer for the cargo of a node whose owner is `own`."""
        self._cargo = cargo
        self._belongings = Belongings(own)
        self._uploads = 0

    @abstractmethod
    def _find(self, selector: str) -> JobRecord:
        """Return the job that a user means."""

    @abstractmethod
    def _tasks(self, record: JobRecord, selector: str) -> list[TaskRecord]:
        """Return the tasks of a job that a user means."""

    async def on_missing_blobs(
        self, request: pb.MissingBlobsRequest
    ) -> pb.MissingBlobsReply:
        """Say what must be sent; what is here stays for a while."""
        caller = callers.current()
        blobs = [_checked(name) for name in request.blobs]
        foreign = dict.fromkeys(self._belongings.foreign(caller, blobs))
        known = [blob for blob in blobs if blob not in foreign]
        self._cargo.store.hold(self._holder(), known)
        missing = [*foreign, *self._cargo.store.missing(known)]
        salt = salt_for(caller, self._cargo.salt)
        return pb.MissingBlobsReply(missing=missing, salt=salt)

    async def on_put_blobs(self, parts: AsyncIterator[pb.BlobPart]) -> pb.PutBlobsReply:
        """Keep what is sent, if it is what it is called."""
        store, holder = self._cargo.store, self._holder()
        upload = _Upload(store)
        reply = pb.PutBlobsReply()
        sent: list[BlobId] = []
        try:
            async for part in parts:
                if part.blob:
                    sent.append(_checked(part.blob))
                    store.hold(holder, sent[-1:])
                    reply.blobs += 1
                reply.bytes += len(part.data)
                await upload.take(part)
            await upload.finish()
        finally:
            upload.close()
        self._belongings.note(callers.current(), sent)  # It had all that it named.
        return reply

    async def on_get_blobs(
        self, request: pb.GetBlobsRequest
    ) -> AsyncIterator[pb.BlobPart]:
        """Return blobs; whoever gets them verifies them by their names."""
        store = self._cargo.store
        names = [BlobId(name) for name in request.blobs]
        if foreign := self._belongings.foreign(callers.current(), names):
            raise _no_blob(foreign[0])
        for name in names:
            size = size_of(name)
            for offset in range(0, (size or 0) or 1, PART_BYTES):
                data = await asyncio.to_thread(store.read_at, name, offset, PART_BYTES)
                if size is None or data is None:
                    raise _no_blob(name)
                yield pb.BlobPart(blob="" if offset else name, data=data)

    async def on_outputs(self, request: pb.OutputsRequest) -> pb.OutputsReply:
        """Say what the tasks of a job have left: outputs, or else a checkpoint."""
        record = self._find(request.job)
        left = self._cargo.outputs_of(record)
        reply = pb.OutputsReply(job_id=record.job.id)
        for asked in self._tasks(record, request.task):
            task = asked.task.id
            blob = left.get(task) or self._cargo.checkpoint_of(task)
            if blob is None:
                continue
            data = await asyncio.to_thread(self._cargo.store.read, blob)
            if data is None:
                raise NotFoundError(
                    f"the outputs of {task} are not here any more",
                    because="they were damaged on this node's disk",
                )
            self._belongings.note(callers.current(), [blob, *_files_of(data)])
            kept = reply.tasks.add(task=task, blob=blob, tree=data)
            kept.checkpoint = task not in left
            if not kept.checkpoint:
                kept.patterns.extend(asked.task.work.outputs)
        return reply

    async def on_set_secret(self, request: pb.SetSecretRequest) -> pb.SetSecretReply:
        """Keep a secret."""
        replaced = await asyncio.to_thread(
            self._cargo.secrets.set, request.name, request.value
        )
        return pb.SetSecretReply(replaced=replaced)

    async def on_list_secrets(
        self, request: pb.ListSecretsRequest
    ) -> pb.ListSecretsReply:
        """Return the names of secrets."""
        del request
        names = await asyncio.to_thread(self._cargo.secrets.names)
        return pb.ListSecretsReply(names=names)

    async def on_remove_secret(
        self, request: pb.RemoveSecretRequest
    ) -> pb.RemoveSecretReply:
        """Forget a secret."""
        await asyncio.to_thread(self._cargo.secrets.remove, request.name)
        return pb.RemoveSecretReply()

    async def _check_cargo(self, job: Job) -> None:
        """Hold what a job needs; raise if that is not here, or is somebody else's."""
        caller = callers.current()
        if caller.owner is not None:
            needed = await asyncio.to_thread(self._cargo.needed_by, job)
            if self._belongings.foreign(caller, needed):
                raise UsageError(
                    "the workdir of the job is not here",
                    because="it was not sent by you, or too long ago",
                    hint="submit it again: `shoal submit` sends what is missing",
                )
        await self._cargo.admit(job)

    def _holder(self) -> str:
        """Return in whose name blobs are held that a job is about to need."""
        self._uploads += 1
        holder = f"upload {self._uploads}"
        release = self._cargo.store.release
        asyncio.get_running_loop().call_later(UPLOAD_HELD_S, release, holder)
        return holder


@final
class _Upload:
    """Blobs that come one after another; small ones are written many at a time."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._small: dict[BlobId, bytes] = {}
        self._small_bytes = 0
        self._draft: Draft | None = None
        self._name = BlobId("")

    async def take(self, part: pb.BlobPart) -> None:
        """Take what follows."""
        if not part.blob:
            if self._draft is None:
                raise UsageError("the first part does not say of which blob it is")
            await asyncio.to_thread(self._draft.write, part.data)
            return
        await self._end_draft()
        name, size = BlobId(part.blob), size_of(part.blob)
        if size == len(part.data):
            self._small[name] = part.data
            self._small_bytes += len(part.data)
            if self._small_bytes > PART_BYTES or len(self._small) >= SMALL_AT_ONCE:
                await self._flush()
            return
        self._name = name
        self._draft = await asyncio.to_thread(self._store.draft, size or 0)
        await asyncio.to_thread(self._draft.write, part.data)

    async def finish(self) -> None:
        """Keep all that came."""
        await self._end_draft()
        await self._flush()

    def close(self) -> None:
        """Forget what came in part."""
        if self._draft is not None:
            self._draft.close()

    async def _end_draft(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None:
            _compare(self._name, await asyncio.to_thread(draft.finish))

    async def _flush(self) -> None:
        small, self._small = self._small, {}
        self._small_bytes = 0
        if small:
            await asyncio.to_thread(self._put_all, small)

    def _put_all(self, small: dict[BlobId, bytes]) -> None:
        for name, data in small.items():
            _compare(name, self._store.put(data))


def _files_of(listing: bytes) -> list[BlobId]:
    """Return the blobs that a tree names; none if it is no tree."""
    tree = trees.decode(listing)
    return [] if isinstance(tree, str) else list(tree.files())


def _no_blob(name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no blob {name[:12]}… here",
        because="it was never sent, or was dropped to make room",
    )


def _compare(name: BlobId, found: BlobId) -> None:
    if found != name:
        raise ShoalError(
            "a file is not what it was when it was packed",
            because=f"it was called {name[:12]}…, and its bytes are {found[:12]}…",
            hint="it changed meanwhile: submit again",
        )


def _checked(name: str) -> BlobId:
    if size_of(name) is None:
        raise UsageError(f"'{name[:80]}' is not the name of a blob")
    return BlobId(name)
