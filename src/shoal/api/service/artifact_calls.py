"""API calls about blobs, outputs and secrets.

The node's user may read everything except the values of secrets. Other callers may read
only what belongs to their owner. Uploaded blobs are held for `UPLOAD_HELD_S`, so that
they survive until the job that needs them is submitted.
"""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.api.service import callers
from shoal.blobs import trees
from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.model.ids import BlobId
from shoal.model.inputs import pulled_folder
from shoal.protocol.blob_hashing import size_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from shoal.api.service.callers import Caller
    from shoal.blobs.store import BlobStore, Draft
    from shoal.core.records.records import JobRecord, TaskRecord
    from shoal.model.ids import BlobId, OwnerId
    from shoal.model.job import Job
    from shoal.runtime.artifacts.artifacts import Artifacts

PART_BYTES: Final = 1 << 20
SMALL_AT_ONCE: Final = 64
UPLOAD_HELD_S: Final = 3_600.0
"""How long uploaded blobs are held for a job to be submitted."""


class ArtifactCalls(ABC):
    """Answers calls about artifacts, one method each; a base of `Service`."""

    def __init__(self, artifacts: Artifacts, own: OwnerId) -> None:
        """Serve the artifacts of a node that `own` owns."""
        self._artifacts = artifacts
        self._belongings = BlobOwners(own)
        self._uploads = 0

    @abstractmethod
    def _find(self, selector: str) -> JobRecord:
        """Return the job that a selector means."""

    @abstractmethod
    def _tasks(self, record: JobRecord, selector: str) -> list[TaskRecord]:
        """Return the tasks of a job that a selector means."""

    async def on_missing_blobs(
        self, request: pb.MissingBlobsRequest
    ) -> pb.MissingBlobsReply:
        """Return which blobs must be sent; hold the others for a while."""
        caller = callers.current()
        blobs = [_checked(name) for name in request.blobs]
        foreign = dict.fromkeys(self._belongings.foreign(caller, blobs))
        known = [blob for blob in blobs if blob not in foreign]
        self._artifacts.store.hold(self._holder(), known)
        missing = [*foreign, *self._artifacts.store.missing(known)]
        salt = salt_for(caller, self._artifacts.salt)
        return pb.MissingBlobsReply(missing=missing, salt=salt)

    async def on_put_blobs(self, parts: AsyncIterator[pb.BlobPart]) -> pb.PutBlobsReply:
        """Store blobs; raise if one does not match its name."""
        store, holder = self._artifacts.store, self._holder()
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
        self._belongings.note(callers.current(), sent)  # The caller had the bytes.
        return reply

    async def on_get_blobs(
        self, request: pb.GetBlobsRequest
    ) -> AsyncIterator[pb.BlobPart]:
        """Yield blobs in parts; the caller verifies them by their names."""
        store = self._artifacts.store
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
        """Return the outputs of a job's tasks, or else their checkpoints."""
        record = self._find(request.job)
        left = self._artifacts.outputs_of(record)
        reply = pb.OutputsReply(job_id=record.job.id)
        groups = {group.id: group for group in record.job.groups}
        for asked in self._tasks(record, request.task):
            task = asked.task.id
            blob = left.get(task) or self._artifacts.checkpoints.latest(task)
            if blob is None:
                continue
            data = await asyncio.to_thread(self._artifacts.store.read, blob)
            if data is None:
                raise NotFoundError(
                    f"the outputs of {task} are not here any more",
                    because="they were damaged on this node's disk",
                )
            self._belongings.note(callers.current(), [blob, *_files_of(data)])
            kept = reply.tasks.add(task=task, blob=blob, tree=data)
            kept.folder = pulled_folder(groups[asked.task.group], asked.task)
            kept.checkpoint = task not in left
            if not kept.checkpoint:
                kept.patterns.extend(asked.task.work.outputs)
        return reply

    async def on_set_secret(self, request: pb.SetSecretRequest) -> pb.SetSecretReply:
        """Store a secret."""
        replaced = await asyncio.to_thread(
            self._artifacts.secrets.set, request.name, request.value
        )
        return pb.SetSecretReply(replaced=replaced)

    async def on_list_secrets(
        self, request: pb.ListSecretsRequest
    ) -> pb.ListSecretsReply:
        """Return the names of secrets."""
        del request
        names = await asyncio.to_thread(self._artifacts.secrets.names)
        return pb.ListSecretsReply(names=names)

    async def on_remove_secret(
        self, request: pb.RemoveSecretRequest
    ) -> pb.RemoveSecretReply:
        """Delete a secret."""
        await asyncio.to_thread(self._artifacts.secrets.remove, request.name)
        return pb.RemoveSecretReply()

    async def _check_artifacts(self, job: Job) -> None:
        """Hold the blobs a job needs; raise if any is missing or foreign."""
        caller = callers.current()
        if caller.owner is not None:
            needed = await asyncio.to_thread(self._artifacts.needed_by, job)
            if self._belongings.foreign(caller, needed):
                raise UsageError(
                    "the workdir of the job is not here",
                    because="it was not sent by you, or too long ago",
                    hint="submit it again: `shoal submit` sends what is missing",
                )
        await self._artifacts.admit(job)

    def _holder(self) -> str:
        """Return a new holder of blobs, released after `UPLOAD_HELD_S`."""
        self._uploads += 1
        holder = f"upload {self._uploads}"
        release = self._artifacts.store.release
        asyncio.get_running_loop().call_later(UPLOAD_HELD_S, release, holder)
        return holder


@final
class _Upload:
    """Writes a sequence of blobs; small ones are written in batches."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._small: dict[BlobId, bytes] = {}
        self._small_bytes = 0
        self._draft: Draft | None = None
        self._name = BlobId("")

    async def take(self, part: pb.BlobPart) -> None:
        """Take the next part."""
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
        """Write everything that is still pending."""
        await self._end_draft()
        await self._flush()

    def close(self) -> None:
        """Discard an incomplete blob."""
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
    """Return the blobs that a tree lists; empty if it is not a tree."""
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


BLOBS_PER_OWNER_MAX: Final = 200_000
OWNERS_MAX: Final = 256


@final
class BlobOwners:
    """Which blobs each owner may use: those it sent, and outputs of its jobs.

    A blob's name is a hash of its contents, so those who know the contents can guess
    it. Hence a member with a certificate reads and uses only blobs that it sent or that
    were listed as outputs of its jobs. All others appear to be missing, and the member
    sends them again. The same holds for each task that calls. The record is kept in
    memory; the oldest are dropped.
    """

    def __init__(self, own: OwnerId) -> None:
        """Attribute blobs of the node's user to `own`."""
        self._own = own
        self._blobs: dict[str, dict[BlobId, None]] = {}
        self._of_tasks: dict[str, dict[BlobId, None]] = {}

    def note(self, caller: Caller, blobs: Iterable[BlobId]) -> None:
        """Record blobs as belonging to the caller's owner."""
        owners, owner = self._who(caller)
        known = owners.pop(owner, {})
        if len(owners) >= OWNERS_MAX:
            del owners[next(iter(owners))]
        owners[owner] = known
        for blob in blobs:
            known.pop(blob, None)
            known[blob] = None
        while len(known) > BLOBS_PER_OWNER_MAX:
            del known[next(iter(known))]

    def foreign(self, caller: Caller, blobs: Iterable[BlobId]) -> list[BlobId]:
        """Return the blobs that a caller has no right to, in the given order."""
        if caller.owner is None:
            return []
        owners, owner = self._who(caller)
        known = owners.get(owner, {})
        return [blob for blob in blobs if blob not in known]

    def _who(self, caller: Caller) -> tuple[dict[str, dict[BlobId, None]], str]:
        """Return where the blobs of a caller are noted, and under which name."""
        if caller.parent is not None:
            return self._of_tasks, str(caller.parent)
        return self._blobs, self._own if caller.owner is None else caller.owner


def salt_for(caller: Caller, salt: bytes) -> bytes:
    """Return the salt of a caller's trees; it differs for other owners."""
    if caller.is_own or caller.owner is None:
        return salt
    return hashlib.sha256(salt + caller.owner.encode()).digest()[: len(salt)]
