"""What a running task may ask of its worker, over its socket.

A task is not trusted: it reaches files below its work directory only, and its calls
are answered one by one, with an error if they are nonsense.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.blobs import beneath
from shoal.blobs.hashing import size_of
from shoal.errors import ShoalError
from shoal.model.bounds import PATH_LENGTH_MAX
from shoal.model.grammar import is_below
from shoal.model.ids import BlobId, NodeId
from shoal.model.texts import cleaned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from shoal.runtime.blobs import Blobs

SOURCES_MAX: Final = 64
LINGER_S: Final = 600.0
"""How long what a task has put is kept for others after its end."""


@final
class TaskCalls:
    """The calls of one attempt."""

    def __init__(
        self,
        blobs: Blobs,
        node: NodeId,
        holder: str,
        sources: tuple[NodeId, ...],
        directory: Callable[[], Path],
        save: Callable[[str, Path], Awaitable[BlobId]],
    ) -> None:
        """Look for blobs at `sources`; `save` keeps checkpoints."""
        self.used = False  # whether the task has asked for anything yet
        self._blobs = blobs
        self._node = node
        self._holder = holder
        self._sources = sources
        self._directory = directory
        self._save = save

    async def __call__(self, call: Mapping[str, object]) -> dict[str, object]:
        """Answer a call of the task; never raises."""
        self.used = True
        try:
            match call.get("call"):
                case "put":
                    return await self._put(_text(call, "path"))
                case "get":
                    return await self._get(call)
                case "forget":
                    blob = BlobId(_text(call, "blob"))
                    self._blobs.store.let_go(self._holder, blob)
                    return {}
                case "checkpoint":
                    return await self._checkpoint(_text(call, "path"))
                case other:
                    return {"error": f"no such call: '{str(other)[:80]}'"}
        except ShoalError as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": f"the worker cannot: {error}"}

    def close(self) -> None:
        """Let go of what the task has put, after a while."""
        loop = asyncio.get_running_loop()
        loop.call_later(LINGER_S, self._blobs.store.release, self._holder)

    async def _checkpoint(self, path: str) -> dict[str, object]:
        if len(path) > PATH_LENGTH_MAX or not is_below(
            path
        ):  # It is told to others, in a message.
            raise ShoalError(
                f"'{cleaned(path[:200])}' is not a path below the work directory",
                hint="write it like out/step-100",
            )
        return {"tree": await self._save(path, self._directory())}

    async def _put(self, path: str) -> dict[str, object]:
        blob = await asyncio.to_thread(self._read, path)
        self._blobs.shelf.give_out(blob)
        return {"blob": blob, "node": self._node}

    def _read(self, path: str) -> BlobId:
        with beneath.opened(self._directory(), path) as descriptor:
            return self._blobs.store.put_file(descriptor, self._holder)

    async def _get(self, call: Mapping[str, object]) -> dict[str, object]:
        blob, path = BlobId(_text(call, "blob")), _text(call, "path")
        beneath.names_of(path)
        named = call.get("nodes", [])
        if not isinstance(named, list):
            raise ShoalError("'nodes' is not a list")
        nodes = (NodeId(str(node)) for node in named)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        sources = [n for n in (*nodes, *self._sources) if n != self._node]
        self._blobs.store.hold(self._holder, (blob,))
        await self._blobs.fetch(blob, sources[:SOURCES_MAX])
        await asyncio.to_thread(self._write, blob, path)
        self._blobs.shelf.give_out(blob)
        return {"size": size_of(blob)}

    def _write(self, blob: BlobId, path: str) -> None:
        def fill(descriptor: int) -> None:
            def write(data: bytes) -> None:
                beneath.write_all(descriptor, data)

            if not self._blobs.store.copy(blob, write):
                raise ShoalError("it was damaged on the worker's disk; ask again")

        beneath.write(self._directory(), path, fill)


def _text(call: Mapping[str, object], name: str) -> str:
    found = call.get(name)
    if not isinstance(found, str):
        raise ShoalError(f"'{name}' is not a text")
    return found
