"""The node's side of `api/client/socket_client`, which has the theory of operation."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, final

from shoal.api.call_frames import END, ERROR, MESSAGE, frame, frame_buffer, packed
from shoal.api.methods import told
from shoal.api.sockets import private
from shoal.framing import FramingError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from google.protobuf.message import Message

    from shoal.api.methods import Methods

END_S: Final = 0.5
READ_BYTES: Final = 1 << 18
REQUESTS_WAITING_MAX: Final = 4
"""Requests of a stream that wait for the call; then the client waits."""


@final
class SocketServer:
    """Serves local commands; only the node's user can connect."""

    def __init__(self, methods: Methods, path: Path) -> None:
        self.path = path
        self._methods = methods
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Start listening."""
        with private(self.path):
            self._server = await asyncio.start_unix_server(self._line, str(self.path))

    async def close(self) -> None:
        """Stop; give running calls `END_S` to finish."""
        if self._server is None:
            return
        self._server.close()
        self.path.unlink(missing_ok=True)
        if self._lines:
            await asyncio.wait(self._lines, timeout=END_S)
        for line in self._lines:
            line.cancel()

    async def _line(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one call; cancel it if the client hangs up."""
        serving = asyncio.ensure_future(serve_call(self._methods, reader, writer))
        self._lines.add(serving)
        try:
            await serving
        except (OSError, FramingError, asyncio.CancelledError):
            pass  # The client left, or the node stops.
        finally:
            self._lines.discard(serving)
            writer.close()


async def serve_call(
    methods: Methods,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    check: Callable[[str], None] | None = None,
) -> None:
    """Answer the one call of a connection; `check` raises if it is not allowed."""
    frames = _frames(reader)
    request = await anext(frames, None)
    if request is None:
        return
    name, _, data = request[1:].partition(b"\0")
    method = name.decode(errors="replace")
    requests = Requests(data)
    if methods.takes_stream(method):
        answers = methods.stream_answers(method, requests.all())
    else:
        answers = methods.answers(method, data)
    if check is not None:
        answers = _checked(check, method, answers)
    work = asyncio.ensure_future(_answer(answers, writer))
    gone = asyncio.ensure_future(requests.read(frames))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (work, gone):
            task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _answer(
    answers: AsyncGenerator[Message], writer: asyncio.StreamWriter
) -> None:
    try:
        async with aclosing(answers):
            async for answer in answers:
                writer.write(frame(MESSAGE, answer))
                await writer.drain()
        writer.write(packed(END, b""))
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - Reported to the client.
        writer.write(frame(ERROR, told(error)))
    await writer.drain()


async def _checked(
    check: Callable[[str], None], method: str, answers: AsyncGenerator[Message]
) -> AsyncGenerator[Message]:
    """Yield the answers of a call that is allowed; raise before the first if not."""
    async with aclosing(answers):
        check(method)
        async for answer in answers:
            yield answer


@final
class Requests:
    """The requests of one call, of which most have one; the client reads on slowly."""

    def __init__(self, first: bytes) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(REQUESTS_WAITING_MAX)
        self._waiting.put_nowait(first)

    async def read(self, frames: AsyncIterator[bytes]) -> None:
        """Take in requests until the client hangs up; an END frame is the last."""
        async for frame_ in frames:
            await self._waiting.put(None if frame_[0] == END else frame_[1:])

    async def all(self) -> AsyncGenerator[bytes]:
        """Yield requests as they come, until the client ends them or hangs up."""
        while (data := await self._waiting.get()) is not None:
            yield data


async def _frames(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """Yield the frames of a client until it hangs up."""
    buffer = frame_buffer()
    while data := await reader.read(READ_BYTES):
        for body in buffer.feed(data):
            yield body
