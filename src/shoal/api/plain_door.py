"""The node's side of calls over a plain socket; `plain` says why there is one."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import (
    END,
    ERROR,
    FRAME_BYTES_MAX,
    HEAD_BYTES,
    MESSAGE,
    frame,
    head,
)
from shoal.api.failures import message_of, shown_of
from shoal.api.sockets import private
from shoal.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

    from shoal.api.service import Service

END_S: Final = 0.5


class _Method(NamedTuple):
    request: type[Message]
    call: Callable[[Any], Any]
    streams: bool


@final
class PlainDoor:
    """Listens for commands of this machine; nobody but the node's user can connect."""

    def __init__(self, service: Service, path: Path) -> None:
        self.path = path
        self._methods = _methods(service)
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Begin to listen."""
        with private(self.path):
            self._server = await asyncio.start_unix_server(self._line, str(self.path))

    async def close(self) -> None:
        """Let calls under way end, briefly."""
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
        """Serve one call; it ends when the client hangs up."""
        serving = asyncio.ensure_future(self._serve(reader, writer))
        self._lines.add(serving)
        try:
            await serving
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The client has gone, or the node ends.
        finally:
            self._lines.discard(serving)
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        begin = await reader.readexactly(HEAD_BYTES)
        size = int.from_bytes(begin[:4], "little")
        if size > FRAME_BYTES_MAX:
            return
        name, _, data = (await reader.readexactly(size)).partition(b"\0")
        work = asyncio.ensure_future(self._answer(name.decode(), data, writer))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    async def _answer(
        self, name: str, data: bytes, writer: asyncio.StreamWriter
    ) -> None:
        try:
            method = self._methods.get(name)
            if method is None:
                raise UsageError(
                    f"there is no call '{name[:80]}' here",
                    because="the node is of another version than the command",
                    hint="restart it: shoal down; shoal up",
                )
            request = method.request.FromString(data)
            async for answer in _answers(method, request):
                writer.write(frame(MESSAGE, answer))
                await writer.drain()
            writer.write(head(0, END))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - A client gets an answer.
            writer.write(frame(ERROR, _told(error)))
        await writer.drain()


async def _answers(method: _Method, request: Message) -> AsyncIterator[Message]:
    if not method.streams:
        answer: Awaitable[Message] = method.call(request)
        yield await answer
        return
    answers: AsyncIterator[Message] = method.call(request)
    async for each in answers:
        yield each


def _told(error: Exception) -> pb.Error:
    if isinstance(error, DecodeError):
        error = UsageError("the request cannot be read")
    return message_of(*shown_of(error))


def _methods(service: Service) -> dict[str, _Method]:
    """Return the calls that take one request; the others need gRPC."""
    described = pb.DESCRIPTOR.services_by_name["Shoal"].methods
    return {
        each.name: _Method(
            getattr(pb, each.input_type.name),
            getattr(service, f"on_{snake(each.name)}"),
            each.server_streaming,
        )
        for each in described
        if not each.client_streaming
    }


def snake(name: str) -> str:
    """Return the name of a call as the methods that answer it have it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
