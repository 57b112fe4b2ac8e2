"""The calls about blobs, outputs and secrets.

Whoever may call is the node's user, and may have all of it but the values of secrets.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.blobs.hashing import size_of
from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.model.ids import BlobId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from shoal.blobs.store import Draft
    from shoal.core.jobs import JobRecord, TaskRecord
    from shoal.runtime.cargo import Cargo

PART_BYTES: Final = 1 << 20
UPLOAD_HELD_S: Final = 3_600.0
"""How long what was sent stays for the job that is about to need it."""


class CargoCalls(ABC):
    """One method for each call."""

    def __init__(self, cargo: Cargo) -> None:
        self._cargo = cargo
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
        for name in request.blobs:
            if size_of(name) is None:
                raise UsageError(f"'{name[:80]}' is not the name of a blob")
        blobs = [BlobId(name) for name in request.blobs]
        self._hold(blobs)
        missing = self._cargo.store.missing(blobs)
        return pb.MissingBlobsReply(missing=missing, salt=self._cargo.salt)

    async def on_put_blobs(self, parts: AsyncIterator[pb.BlobPart]) -> pb.PutBlobsReply:
        """Keep what is sent, if it is what it is called."""
        store = self._cargo.store
        reply = pb.PutBlobsReply()
        draft: Draft | None = None
        name = BlobId("")
        try:
            async for part in parts:
                if part.blob:
                    if draft is not None:
                        await asyncio.to_thread(_finish, draft, name)
                    name = BlobId(part.blob)
                    size = size_of(name)
                    if size is None:
                        raise UsageError(f"'{name[:80]}' is not the name of a blob")
                    self._hold((name,))
                    draft = await asyncio.to_thread(store.draft, size)
                    reply.blobs += 1
                if draft is None:
                    raise UsageError("the first part does not say of which blob it is")
                reply.bytes += len(part.data)
                if len(part.data) > PART_BYTES // 16:
                    await asyncio.to_thread(draft.write, part.data)
                else:
                    draft.write(part.data)  # Less than a change of threads costs.
            if draft is not None:
                await asyncio.to_thread(_finish, draft, name)
                draft = None
        finally:
            if draft is not None:
                draft.close()
        return reply

    async def on_get_blobs(
        self, request: pb.GetBlobsRequest
    ) -> AsyncIterator[pb.BlobPart]:
        """Return blobs; whoever gets them verifies them by their names."""
        store = self._cargo.store
        for name in request.blobs:
            size = size_of(name)
            for offset in range(0, (size or 0) or 1, PART_BYTES):
                data = await asyncio.to_thread(
                    store.read_at, BlobId(name), offset, PART_BYTES
                )
                if size is None or data is None:
                    raise NotFoundError(
                        f"there is no blob {name[:12]}… here",
                        because="it was never sent, or was dropped to make room",
                    )
                yield pb.BlobPart(blob="" if offset else name, data=data)

    async def on_outputs(self, request: pb.OutputsRequest) -> pb.OutputsReply:
        """Say what the tasks of a job have left."""
        record = self._find(request.job)
        asked = {task.task.id: task for task in self._tasks(record, request.task)}
        reply = pb.OutputsReply(job_id=record.job.id)
        for task, blob in self._cargo.outputs_of(record).items():
            if task not in asked:
                continue
            data = await asyncio.to_thread(self._cargo.store.read, blob)
            if data is None:
                raise NotFoundError(
                    f"the outputs of {task} are not here any more",
                    because="they were damaged on this node's disk",
                )
            kept = reply.tasks.add(task=task, blob=blob, tree=data)
            kept.patterns.extend(asked[task].task.work.outputs)
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

    def _hold(self, blobs: Iterable[BlobId]) -> None:
        self._uploads += 1
        holder = f"upload {self._uploads}"
        store = self._cargo.store
        store.hold(holder, blobs)
        asyncio.get_running_loop().call_later(UPLOAD_HELD_S, store.release, holder)


def _finish(draft: Draft, name: BlobId) -> None:
    if (found := draft.finish()) != name:
        raise ShoalError(
            "a file is not what it was when it was packed",
            because=f"it was called {name[:12]}…, and its bytes are {found[:12]}…",
            hint="it changed meanwhile: submit again",
        )
