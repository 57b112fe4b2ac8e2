"""Answer the calls of a running task to its worker, over the task's socket.

Calls put and get blobs, save checkpoints and exchange mail. Tasks are not trusted:
they reach only files below their work directory, may hold `HELD_MAX` blobs and
1/`HELD_SHARE` of the cache, and get an error for an invalid call. Blobs stay held for
`LINGER_S` after the task ends.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, cast, final

from shoal.blobs import safe_paths
from shoal.errors import ShoalError
from shoal.model.ids import BlobId, NodeId
from shoal.model.text.bounds import ID_LENGTH_MAX, PATH_LENGTH_MAX
from shoal.model.text.grammar import is_below, is_key
from shoal.model.text.texts import cleaned, one_line
from shoal.protocol.blob_hashing import size_of
from shoal.runtime.mail.mail_calls import MAIL_CALLS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from shoal.drivers import Calls
    from shoal.runtime.artifacts.blob_exchange import BlobExchange

SOURCES_MAX: Final = 64
HELD_MAX: Final = 4_096
HELD_SHARE: Final = 2
"""One task holds at most `HELD_MAX` files, and 1/`HELD_SHARE` of the cache."""

LINGER_S: Final = 600.0
"""How long a task's blobs are held for others after its end."""


@final
class TaskCalls:
    """The calls of one attempt."""

    def __init__(
        self,
        blobs: BlobExchange,
        node: NodeId,
        holder: str,
        sources: tuple[NodeId, ...],
        directory: Callable[[], Path],
        save: Callable[[str, Path], Awaitable[BlobId]],
        mail: Calls,
    ) -> None:
        """Fetch blobs from `sources`; save checkpoints by `save`, mail by `mail`."""
        self.used = False  # whether the task has used blobs
        self._blobs = blobs
        self._node = node
        self._holder = holder
        self._sources = sources
        self._directory = directory
        self._save = save
        self._mail = mail

    async def __call__(self, call: Mapping[str, object]) -> dict[str, object]:
        """Answer a call of the task. Never raises."""
        try:
            if call.get("call") in MAIL_CALLS:
                return await self._mail(call)
            self.used = True
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
        """Release the task's blobs after `LINGER_S`."""
        loop = asyncio.get_running_loop()
        loop.call_later(LINGER_S, self._blobs.store.release, self._holder)

    async def _checkpoint(self, path: str) -> dict[str, object]:
        # The path is sent to the scheduler, so its length is limited.
        if len(path) > PATH_LENGTH_MAX or not is_below(path):
            raise ShoalError(
                f"'{cleaned(path[:200])}' is not a path below the work directory",
                hint="write it like out/step-100",
            )
        return {"tree": await self._save(path, self._directory())}

    async def _put(self, path: str) -> dict[str, object]:
        blob = await asyncio.to_thread(self._read, path)
        self._blobs.give_out(blob)
        return {"blob": blob, "node": self._node}

    def _read(self, path: str) -> BlobId:
        self._refuse_much()
        with safe_paths.opened(self._directory(), path) as descriptor:
            return self._blobs.store.put_file(descriptor, self._holder)

    async def _get(self, call: Mapping[str, object]) -> dict[str, object]:
        blob, path = _blob(call), _text(call, "path")
        safe_paths.names_of(path)
        store = self._blobs.store
        nodes = (*_nodes(call), *self._sources)
        sources = [node for node in dict.fromkeys(nodes) if node != self._node]
        self._refuse_much(size_of(blob) or 0)
        store.hold(self._holder, (blob,))
        try:
            await self._blobs.fetch(blob, sources[:SOURCES_MAX], _lost_s(call))
        except BaseException:
            store.let_go(self._holder, blob)  # It was not fetched.
            raise
        await asyncio.to_thread(self._write, blob, path)
        self._blobs.give_out(blob)
        return {"size": size_of(blob)}

    def _refuse_much(self, more: int = 0) -> None:
        """Raise if the task would hold more than its share of the cache."""
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
                safe_paths.write_all(descriptor, data)

            if not self._blobs.store.copy(blob, write):
                raise ShoalError("it was damaged on the worker's disk; ask again")

        safe_paths.write(self._directory(), path, fill)


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
            raise ShoalError("'nodes' contains an invalid node id")
        if not is_key(node):
            raise ShoalError(f"'{_shown(node)}' is not the id of a node")
        nodes.append(NodeId(node))
    return nodes


def _lost_s(call: Mapping[str, object]) -> float:
    """Return how long a task waits for nodes that are gone, if it says so."""
    said = call.get("lost_s", math.inf)
    if isinstance(said, bool) or not isinstance(said, int | float) or not said >= 0:
        raise ShoalError("'lost_s' is not a number of seconds")
    return float(said)


def _shown(value: object) -> str:
    return one_line(str(value)[:80])


def _text(call: Mapping[str, object], name: str) -> str:
    found = call.get(name)
    if not isinstance(found, str):
        raise ShoalError(f"'{name}' is not a text")
    return found
