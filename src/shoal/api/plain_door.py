"""The node's side of calls over a plain socket; `plain` says why there is one."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, final

from shoal.api.call_frames import (
    END,
    ERROR,
    FRAME_BYTES_MAX,
    HEAD_BYTES,
    MESSAGE,
    frame,
    head,
)
from shoal.api.methods import told
from shoal.api.sockets import private

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.api.methods import Methods

END_S: Final = 0.5


@final
class PlainDoor:
    """Listens for commands of this machine; nobody but the node's user can connect."""

    def __init__(self, methods: Methods, path: Path) -> None:
        self.path = path
        self._methods = methods
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
        method = name.decode(errors="replace")
        work = asyncio.ensure_future(self._answer(method, data, writer))
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
            async with aclosing(self._methods.answers(name, data)) as answers:
                async for answer in answers:
                    writer.write(frame(MESSAGE, answer))
                    await writer.drain()
            writer.write(head(0, END))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - A client gets an answer.
            writer.write(frame(ERROR, told(error)))
        await writer.drain()
