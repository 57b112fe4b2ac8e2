"""Perform what the machine decides about blobs: the disk work, and the answers.

`core.artifacts.blob_transfers` decides which peer is asked for which piece, and who
gets pieces from here. This module turns calls of `fetch` and `fetch_tree` into facts
and wakes their callers. It proves pieces by their hash and writes them in batches; all
disk work runs in threads, so it never blocks the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from shoal import failpoints
from shoal.blobs import trees
from shoal.core.artifacts.events import (
    AnswerFetch,
    BlobFinished,
    BlobGivenOut,
    BlobWanted,
    FetchDropped,
    FindPieces,
    FinishBlob,
    LeaveBlob,
    MakeRoom,
    PiecesFound,
    PiecesOf,
    PiecesRead,
    PiecesStored,
    ReadPieces,
    ReadTree,
    RoomMade,
    StorePiece,
    TreeRead,
    TreeWanted,
)
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
from shoal.protocol.blob_hashing import is_piece, size_of
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.runtime.artifacts.blob_reader import BlobReader
from shoal.runtime.leasing.task_faults import described

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from shoal.blobs.store import BlobStore
    from shoal.core.events import Effect, Event
    from shoal.model.ids import NodeId

    Told = Callable[[int, int], None]
    """Progress callback: bytes fetched, bytes in total."""

TELL_S: Final = 0.5


@final
class _Call:
    """A caller that waits for a blob or a tree."""

    def __init__(self, answer: asyncio.Future[None], holder: str = "") -> None:
        self.answer = answer
        self.holder = holder
        self.tree: trees.Tree | None = None  # once it is read
        self.missing: dict[BlobId, int] = {}  # files that are to come, and their sizes


@final
class BlobExchange:
    """The store of one node, and the callers that wait for blobs."""

    def __init__(
        self,
        store: BlobStore,
        feed: Callable[[Event], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Report facts to `feed`, and errors of our own to `on_failure`."""
        self.store = store
        self.shelf = BlobReader(store)
        self._feed = feed
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._unwritten: list[StorePiece] = []
        self._written: dict[BlobId, int] = {}  # bytes of blobs that are not whole
        self._writing = False
        self._chores: set[asyncio.Task[None]] = set()

    @property
    def performers(self) -> Mapping[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {
            MakeRoom: partial(self._spawn, self._make_room),
            StorePiece: self._store_piece,
            FindPieces: partial(self._spawn, self._find),
            FinishBlob: partial(self._spawn, self._finish),
            LeaveBlob: self._leave,
            ReadTree: partial(self._spawn, self._read_tree),
            ReadPieces: partial(self._spawn, self._read_pieces),
            AnswerFetch: self._answer,
        }

    async def close(self) -> None:
        """Cancel all fetches; pieces fetched so far survive a restart."""
        for call in self._calls.values():
            call.answer.cancel()
        chores = list(self._chores)
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)

    def give_out(self, blob: BlobId) -> None:
        """Let every member that knows its name fetch a blob from here."""
        self._feed(BlobGivenOut(blob))

    # Callers.

    async def fetch(
        self, blob: BlobId, sources: Iterable[NodeId], lost_s: float = math.inf
    ) -> None:
        """Fetch a blob unless it is stored; raise `ShoalError` on failure.

        It fails `lost_s` after the last link to a source was lost, at the latest.
        """
        if self.store.has(blob):
            return
        if size_of(blob) is None:
            raise ShoalError(f"'{blob[:80]}' is not the name of a blob")
        token = next(self._tokens)
        call = _Call(self._loop.create_future())
        known = tuple(dict.fromkeys(sources))
        wanted = BlobWanted(token, blob, known, lost_s=lost_s)
        await self._called(token, call, wanted)

    async def fetch_tree(
        self,
        tree: BlobId,
        sources: Sequence[NodeId],
        holder: str,
        told: Told | None = None,
        *,
        tries: int = 1,
    ) -> trees.Tree:
        """Fetch a tree and all its files, held for `holder`; return the tree.

        Raises `ShoalError` if a part cannot be fetched or the tree is not valid.
        """
        size = size_of(tree)
        if size is None or size > trees.TREE_BYTES_MAX:
            raise ShoalError(f"'{tree[:80]}' is not the name of a tree")
        self.store.hold(holder, (tree,))
        token = next(self._tokens)
        call = _Call(self._loop.create_future(), holder)
        wanted = TreeWanted(token, tree, tuple(dict.fromkeys(sources)), tries)
        telling = None
        if told is not None:
            telling = self._loop.create_task(self._tell(call, told))
        try:
            await self._called(token, call, wanted)
        finally:
            if telling is not None:
                telling.cancel()
        assert call.tree is not None
        if told is not None:
            total = sum(call.missing.values())
            told(total, total)
        return call.tree

    async def _called(
        self, token: int, call: _Call, wanted: BlobWanted | TreeWanted
    ) -> None:
        self._calls[token] = call
        self._feed(wanted)
        try:
            await call.answer
        finally:
            if self._calls.pop(token, None) is not None:
                self._feed(FetchDropped(token))

    def _answer(self, effect: AnswerFetch) -> None:
        call = self._calls.pop(effect.token, None)
        if call is None or call.answer.done():
            return
        if effect.reason:
            call.answer.set_exception(ShoalError(effect.reason))
        else:
            call.answer.set_result(None)

    async def _tell(self, call: _Call, told: Told) -> None:
        """Report progress every `TELL_S` until cancelled."""
        while True:
            if call.tree is not None:
                here = sum(map(self._bytes_of, call.missing, call.missing.values()))
                told(here, sum(call.missing.values()))
            await asyncio.sleep(TELL_S)

    def _bytes_of(self, blob: BlobId, size: int) -> int:
        return size if self.store.has(blob) else min(size, self._written.get(blob, 0))

    # The disk.

    async def _make_room(self, effect: MakeRoom) -> None:
        blob, begin = effect.blob, self.store.begin
        try:
            resumed = await asyncio.to_thread(begin, blob, effect.whose)
        except Exception as error:  # noqa: BLE001 - No blob ends the node.
            self._feed(RoomMade(effect.fetch, blob, reason=_not_kept(error)))
            return
        self._written[blob] = 0
        self._feed(RoomMade(effect.fetch, blob, resumed))

    def _store_piece(self, effect: StorePiece) -> None:
        self._unwritten.append(effect)
        if not self._writing:
            self._writing = True
            self._spawn(self._store, effect)

    async def _store(self, _: StorePiece) -> None:
        """Write queued pieces in batches until none are left."""
        while self._unwritten:
            batch: dict[int, list[StorePiece]] = {}
            for piece in self._unwritten:
                batch.setdefault(piece.fetch, []).append(piece)
            self._unwritten = []
            facts = await asyncio.to_thread(_store_all, self.store, batch)
            failpoints.reach("blob.written")
            for fact in facts:
                blob = batch[fact.fetch][0].blob
                if blob in self._written:
                    self._written[blob] += len(fact.stored) * PIECE_BYTES_MAX
                self._feed(fact)
        self._writing = False

    async def _find(self, effect: FindPieces) -> None:
        blob, check = effect.blob, self.store.check
        try:
            found = await asyncio.to_thread(check, blob, effect.first, effect.leaves)
        except Exception:  # noqa: BLE001 - Then all of it is fetched.
            found = []
        if blob in self._written:
            self._written[blob] += len(found) * PIECE_BYTES_MAX
        self._feed(PiecesFound(effect.fetch, effect.part, tuple(found)))

    async def _finish(self, effect: FinishBlob) -> None:
        reason = ""
        try:
            await asyncio.to_thread(self.store.finish, effect.blob, effect.leaves)
        except Exception as error:  # noqa: BLE001 - No blob ends the node.
            reason = _not_kept(error)
        self._written.pop(effect.blob, None)
        self._feed(BlobFinished(effect.fetch, reason))

    def _leave(self, effect: LeaveBlob) -> None:
        self._written.pop(effect.blob, None)
        self.store.leave(effect.blob)

    async def _read_tree(self, effect: ReadTree) -> None:
        tree = effect.tree
        try:
            found = await asyncio.to_thread(self.shelf.tree, tree)
        except Exception as error:  # noqa: BLE001 - No blob ends the node.
            found = described(error)
        if isinstance(found, str):
            is_here = self.store.has(tree)
            fact = TreeRead(effect.token, tree, is_here=is_here, reason=found)
        else:
            files, call = found.files(), self._calls.get(effect.token)
            if call is not None:
                self.store.hold(call.holder, files)  # before any can make room
            missing = self.store.missing(files)
            if call is not None:
                call.tree = found
                call.missing = {blob: size_of(blob) or 0 for blob in missing}
            fact = TreeRead(effect.token, tree, tuple(files), tuple(missing))
        self._feed(fact)

    async def _read_pieces(self, effect: ReadPieces) -> None:
        try:
            found = await asyncio.to_thread(self._read_all, effect)
        except Exception as error:  # noqa: BLE001 - No blob ends the node.
            why = described(error)
            found = tuple(PiecesOf(each.blob, reason=why) for each in effect.wanted)
        for _ in (piece for each in found for piece in each.pieces):
            failpoints.reach("blob.served")
        self._feed(PiecesRead(effect.peer, found))

    def _read_all(self, effect: ReadPieces) -> tuple[PiecesOf, ...]:
        return tuple(self.shelf.pieces(wanted) for wanted in effect.wanted)

    def _spawn(
        self, work: Callable[[Any], Coroutine[None, None, None]], effect: object
    ) -> None:
        """Perform an effect in the background."""
        chore = self._loop.create_task(work(effect))
        self._chores.add(chore)
        chore.add_done_callback(self._on_done)

    def _on_done(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        if not chore.cancelled() and (error := chore.exception()) is not None:
            self._on_failure(error)


def _store_all(
    store: BlobStore, batch: dict[int, list[StorePiece]]
) -> list[PiecesStored]:
    """Check pieces and write the valid ones. Runs in a thread."""
    return [_store_some(store, fetch, pieces) for fetch, pieces in batch.items()]


def _store_some(store: BlobStore, fetch: int, pieces: list[StorePiece]) -> PiecesStored:
    blob = pieces[0].blob
    right: list[StorePiece] = []
    wrong: list[int] = []
    for each in pieces:
        if is_piece(blob, each.leaf, each.data):
            right.append(each)
        else:
            wrong.append(each.index)
    try:
        if right and not right[0].leaf:
            store.put(right[0].data)
        elif right:
            store.write(blob, [(each.index, each.data) for each in right])
    except Exception as error:  # noqa: BLE001 - No blob ends the node.
        return PiecesStored(fetch, reason=_not_kept(error))
    stored = tuple(each.index for each in right)
    return PiecesStored(fetch, stored, tuple(wrong))


def _not_kept(error: Exception) -> str:
    return f"cannot keep it: {described(error)}"
