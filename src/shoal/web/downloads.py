"""Outputs and logs of jobs as files for a browser: listed, then streamed.

A browser saves a file by following a link, and a link carries no token. So the page
asks for a ticket, with its token, and follows a link with the ticket: it opens one
file, once, within `VALID_S`. A file is streamed as it is read, so its size does not
matter; several become a zip archive, which is made on the way. Names come from tasks:
they are shown to browsers without anything that steers a path, a header or a screen.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import zipfile
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast, final
from urllib.parse import quote

import msgspec
from starlette.responses import StreamingResponse

from shoal.api import shoal_pb2 as pb
from shoal.blobs import trees
from shoal.errors import NotFoundError
from shoal.protocol.blob_hashing import size_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

    from shoal.api.service.service import Service

VALID_S: Final = 60.0
TICKETS_MAX: Final = 64
FILES_LISTED_MAX: Final = 2_000
NAME_CHARS_MAX: Final = 120
BIG_BYTES: Final = 1 << 30
"""From here on a file in an archive has 64-bit sizes."""

_UNSAFE: Final = frozenset('<>:"|?*\\/%')


class DownloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to download: a file of a task, all outputs of a task or job, or its log."""

    job: str
    task: str = ""
    path: Annotated[str, msgspec.Meta(max_length=trees.PATH_BYTES_MAX)] = ""
    log: bool = False


class OutputFile(NamedTuple):
    """A file that a task has left; `blob` holds its bytes."""

    task: str
    folder: str
    path: str
    blob: str

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return size_of(self.blob) or 0


@final
class Tickets:
    """What may be downloaded without a token, once each, for a short while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, tuple[float, DownloadBody]] = {}

    def give(self, wanted: DownloadBody) -> str:
        """Return a new ticket; the oldest is void if there are too many."""
        ticket = secrets.token_urlsafe(24)
        self._open[ticket] = (self._clock() + VALID_S, wanted)
        if len(self._open) > TICKETS_MAX:
            del self._open[next(iter(self._open))]
        return ticket

    def take(self, ticket: str) -> DownloadBody:
        """Return what a ticket is for, and void it."""
        until, wanted = self._open.pop(ticket, (0.0, None))
        if wanted is None or self._clock() > until:
            raise NotFoundError(
                "this link is no good any more",
                because=f"it works once, within {VALID_S:.0f} seconds",
                hint="press the button on the page again",
            )
        return wanted


@final
class Downloads:
    """Lists and sends what jobs have left."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def listing(self, job: str, task: str) -> dict[str, Any]:
        """Return the files that the tasks of a job have left, as JSON fields."""
        reply = await self._service.on_outputs(pb.OutputsRequest(job=job, task=task))
        left = FILES_LISTED_MAX
        tasks: list[dict[str, Any]] = []
        for each in reply.tasks:
            files = list(_files(each))
            tasks.append(
                {
                    "task": each.task,
                    "checkpoint": each.checkpoint,
                    "files": [{"path": f.path, "bytes": f.size} for f in files[:left]],
                    "count": len(files),
                    "bytes": sum(file.size for file in files),
                }
            )
            left = max(0, left - len(files))
        return {"job": reply.job_id, "tasks": tasks}

    async def response(self, wanted: DownloadBody) -> StreamingResponse:
        """Return the file that was wanted, as it is read."""
        if wanted.log:
            asked = pb.GetRequest(job=wanted.job, tasks_max=1)
            job = (await self._service.on_get(asked)).id
            name = f"{wanted.task or job}.log"
            return _attached(name, self._log(job, wanted.task), 0, "text/plain")
        asked_outputs = pb.OutputsRequest(job=wanted.job, task=wanted.task)
        reply = await self._service.on_outputs(asked_outputs)
        files = [file for each in reply.tasks for file in _files(each)]
        if wanted.path:
            files = [file for file in files if file.path == wanted.path]
        if not files:
            raise NotFoundError(
                "there is nothing to download",
                because="the job has left no such file, or it is not here any more",
                hint=f"`shoal pull {reply.job_id}` says what there is",
            )
        if wanted.path:
            name = wanted.path.rpartition("/")[2]
            parts = self._blob(files[0].blob)
            return _attached(name, parts, files[0].size, "application/octet-stream")
        name = f"{wanted.task or reply.job_id}.zip"
        return _attached(name, self._archive(files), 0, "application/zip")

    async def _blob(self, blob: str) -> AsyncGenerator[bytes]:
        asked = pb.GetBlobsRequest(blobs=[blob])
        found = cast("AsyncGenerator[pb.BlobPart]", self._service.on_get_blobs(asked))
        async with aclosing(found) as parts:
            async for part in parts:
                yield part.data

    async def _archive(self, files: list[OutputFile]) -> AsyncGenerator[bytes]:
        sink = _Sink()
        with zipfile.ZipFile(cast("Any", sink), "w", zipfile.ZIP_STORED) as archive:
            for file in files:
                info = zipfile.ZipInfo(_archived(file), time.localtime()[:6])
                info.external_attr = 0o644 << 16
                big = file.size >= BIG_BYTES
                with archive.open(info, "w", force_zip64=big) as entry:
                    async for data in self._blob(file.blob):
                        await asyncio.to_thread(entry.write, data)  # It sums them up.
                        yield sink.take()
                yield sink.take()
        yield sink.take()

    async def _log(self, job: str, task: str) -> AsyncGenerator[bytes]:
        asked = pb.LogsRequest(job=job, task=task, all_attempts=True)
        found = cast("AsyncGenerator[pb.LogPiece]", self._service.on_logs(asked))
        last: tuple[str, int, int] | None = None
        async with aclosing(found) as pieces:
            async for piece in pieces:
                place = (piece.task, piece.attempt, piece.stream)
                if place != last:
                    stream = pb.Stream.Name(piece.stream).removeprefix("STREAM_")
                    title = f"{piece.task} attempt {piece.attempt} {stream.lower()}"
                    yield f"{'' if last is None else chr(10)}==> {title} <==\n".encode()
                    last = place
                yield piece.data


class _Sink:
    """Takes what an archive writes, until it is sent; it cannot seek."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def safe_name(text: str) -> str:
    """Return a file name that is harmless on any system; never empty."""
    plain = "".join(
        "_" if char in _UNSAFE or not char.isprintable() else char for char in text
    )
    plain = plain.strip(". ")
    if len(plain) > NAME_CHARS_MAX:  # The ending says what it is.
        plain = plain[: NAME_CHARS_MAX - 20] + plain[-20:]
    return plain or "file"


def _files(left: pb.TaskOutputs) -> Iterator[OutputFile]:
    tree = trees.decode(left.tree)
    if isinstance(tree, str):
        return
    for entry in tree.entries:
        if entry.kind in ("file", "program"):
            folder = left.folder or left.task.partition(".")[2]
            yield OutputFile(left.task, folder, entry.path, entry.to)


def _archived(file: OutputFile) -> str:
    parts = (*file.folder.split("/"), *file.path.split("/"))
    return "/".join(map(safe_name, parts))


def _attached(
    name: str, parts: AsyncIterator[bytes], size: int, kind: str
) -> StreamingResponse:
    plain = safe_name(name)
    shown = plain.encode("ascii", "replace").decode().replace("?", "_")
    exact = f"UTF-8''{quote(plain, safe='')}"
    headers = {
        "Content-Disposition": f'attachment; filename="{shown}"; filename*={exact}',
        "Content-Type": kind,
    }
    if size:
        headers["Content-Length"] = str(size)
    return StreamingResponse(parts, headers=headers)
