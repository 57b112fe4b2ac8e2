"""What a running task may ask of its worker, over its socket.

A task is not trusted: it reaches files below its work directory only, and its calls
are answered one by one, with an error if they are nonsense.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast, final

from shoal.blobs import beneath
from shoal.blobs.hashing import size_of
from shoal.errors import ShoalError
from shoal.model.bounds import ID_LENGTH_MAX, PATH_LENGTH_MAX
from shoal.model.grammar import is_below, is_key
from shoal.model.ids import BlobId, NodeId
from shoal.model.texts import cleaned, one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from shoal.runtime.blobs import Blobs

SOURCES_MAX: Final = 64
HELD_MAX: Final = 4_096
HELD_SHARE: Final = 2
"""What is kept for one task: so many files, and such a part of the cache."""

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
                    self._blobs.store.let_go(self._holder, _blob(call))
                    return {}
                case "checkpoint":
                    return await self._checkpoint(_text(call, "path"))
                case other:
                    return {"error": f"no such call: '{_shown(other)}'"}
        except ShoalError as error:
            return {"error": str(error)}
        except OSError as error:
            why = error.strerror or type(error).__name__
            return {"error": f"the worker cannot: {why}"}
        except Exception as error:  # noqa: BLE001 - A task gets an answer in any case.
            return {"error": f"the worker cannot: {type(error).__name__}"}

    def close(self) -> None:
        """Let go of what the task has put, after a while."""
        loop = asyncio.get_running_loop()
        loop.call_later(LINGER_S, self._blobs.store.release, self._holder)

    async def _checkpoint(self, path: str) -> dict[str, object]:
        # It is told to others, in a message.
        if len(path) > PATH_LENGTH_MAX or not is_below(path):
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
        self._refuse_much()
        with beneath.opened(self._directory(), path) as descriptor:
            return self._blobs.store.put_file(descriptor, self._holder)

    async def _get(self, call: Mapping[str, object]) -> dict[str, object]:
        blob, path = _blob(call), _text(call, "path")
        beneath.names_of(path)
        store = self._blobs.store
        nodes = (*_nodes(call), *self._sources)
        sources = [node for node in dict.fromkeys(nodes) if node != self._node]
        self._refuse_much(size_of(blob) or 0)
        store.hold(self._holder, (blob,))
        try:
            await self._blobs.fetch(blob, sources[:SOURCES_MAX])
        except BaseException:
            store.let_go(self._holder, blob)  # What is not here is not kept.
            raise
        await asyncio.to_thread(self._write, blob, path)
        self._blobs.shelf.give_out(blob)
        return {"size": size_of(blob)}

    def _refuse_much(self, more: int = 0) -> None:
        """Keep no more for one task than it may need: others need the cache, too."""
        store = self._blobs.store
        count, size = store.held(self._holder)
        most = store.bytes_max // HELD_SHARE
        if count >= HELD_MAX or size + more > most:
            raise ShoalError(
                f"the worker keeps {count:,} files of {size:,} bytes for this task",
                because=f"the most is {HELD_MAX:,} files and {most:,} bytes",
                hint="let it forget what is not needed: shoal.forget(name)",
            )

    def _write(self, blob: BlobId, path: str) -> None:
        def fill(descriptor: int) -> None:
            def write(data: bytes) -> None:
                beneath.write_all(descriptor, data)

            if not self._blobs.store.copy(blob, write):
                raise ShoalError("it was damaged on the worker's disk; ask again")

        beneath.write(self._directory(), path, fill)


def _blob(call: Mapping[str, object]) -> BlobId:
    text = _text(call, "blob")
    if len(text) > ID_LENGTH_MAX or size_of(text) is None:
        raise ShoalError(f"'{_shown(text)}' is not the name of a blob")
    return BlobId(text)


def _nodes(call: Mapping[str, object]) -> list[NodeId]:
    named = call.get("nodes", [])
    if not isinstance(named, list):
        raise ShoalError("'nodes' is not a list")
    nodes: list[NodeId] = []
    for node in cast("list[object]", named)[:SOURCES_MAX]:
        if not isinstance(node, str) or not 0 < len(node) <= ID_LENGTH_MAX:
            raise ShoalError("'nodes' has what is not the id of a node")
        if not is_key(node):
            raise ShoalError(f"'{_shown(node)}' is not the id of a node")
        nodes.append(NodeId(node))
    return nodes


def _shown(value: object) -> str:
    return one_line(str(value)[:80])


def _text(call: Mapping[str, object], name: str) -> str:
    found = call.get(name)
    if not isinstance(found, str):
        raise ShoalError(f"'{name}' is not a text")
    return found
