"""Fetch blobs from peers, and serve blobs to them.

`blobs.transfer` decides which peer to ask for which piece. This module sends its
requests, writes the pieces it accepts, and wakes the callers of `fetch`. Concurrent
fetches of one blob share a transfer; it is dropped when its last caller is cancelled.
Disk work runs in threads, so it never blocks the event loop. `blob_access` decides
what a peer may read, and `piece_server` answers it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, assert_never, final

import msgspec

from shoal import failpoints
from shoal.blobs import transfer, trees
from shoal.blobs.hashing import size_of
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.protocol.messages import BlobHeld
from shoal.runtime.alarm import Alarm
from shoal.runtime.artifacts.blob_access import BlobAccess
from shoal.runtime.artifacts.piece_server import PieceServer
from shoal.runtime.artifacts.tree_holders import TreeHolders
from shoal.runtime.leasing.task_faults import described

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from shoal.blobs.store import BlobStore
    from shoal.model.ids import NodeId
    from shoal.net.base import Links
    from shoal.protocol.messages import AnyMessage, ToStore

    Told = Callable[[int, int], None]
    """Progress callback: bytes fetched, bytes in total."""

AT_ONCE_MAX: Final = 1_024
"""Most files of one tree fetched concurrently."""

TELL_S: Final = 0.5


@final
class BlobExchange:
    """Fetches and serves blobs over the node's shared links."""

    def __init__(
        self,
        store: BlobStore,
        *,
        is_member: Callable[[NodeId], bool],
        where: Callable[[NodeId], tuple[str, ...]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Serve members only; `where` returns a member's addresses."""
        self.store = store
        self.transfers = transfer.Transfers()
        self.shelf = BlobAccess(store)
        self.serving = PieceServer(self.shelf, self._send)
        self._is_member = is_member
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._links: Links | None = None
        self._holders = TreeHolders(where)
        self._waiting: dict[BlobId, asyncio.Future[None]] = {}
        self._waiters: dict[BlobId, int] = {}
        self._unwritten: dict[BlobId, list[tuple[int, bytes]]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._alarm = Alarm(lambda: self._feed(transfer.TimePassed()))

    def start(self, links: Links) -> None:
        """Begin to send requests and answers."""
        self._links = links

    async def close(self) -> None:
        """Cancel all fetches; pieces fetched so far survive a restart."""
        self._alarm.stop()
        for waiting in self._waiting.values():
            waiting.cancel()
        chores = [*self._chores, *([self._writing] if self._writing else [])]
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await self.serving.close()

    # From the network.

    def received(self, peer: NodeId, message: ToStore) -> None:
        """Handle a message about blobs."""
        match message:
            case BlobPiece():
                self._feed(transfer.PieceCame(peer, message))
            case PieceRefusal():
                self._feed(transfer.PieceRefused(peer, message))
            case PieceWanted() | BlobHeld():
                # The machine may not have heard yet that the peer is connected.
                self._loop.call_soon(self._take_from_member, peer, message)
            case _:
                assert_never(message)

    def _take_from_member(self, peer: NodeId, message: PieceWanted | BlobHeld) -> None:
        if not self._is_member(peer):
            return
        match message:
            case PieceWanted():
                self.serving.ask(peer, message)
                if holders := self._holders.besides(peer, message.blob):
                    self._send(peer, BlobHeld(blob=message.blob, holders=holders))
            case BlobHeld():
                self._on_held(peer, message)

    def lost(self, peer: NodeId) -> None:
        """Note that the link to a peer is down."""
        self._feed(transfer.LinkLost(peer))

    def _on_held(self, peer: NodeId, held: BlobHeld) -> None:
        if not held.holders:
            if self.store.has(held.blob):
                self._holders.note(held.blob, peer)
            return
        for also, blobs in self._holders.told(peer, held).items():
            assert self._links is not None
            self._links.know(also.node, also.addresses)
            for blob in blobs:
                self._feed(transfer.SourcesFound(blob, (also.node,)))

    # Fetching.

    async def fetch(
        self,
        blob: BlobId,
        sources: Iterable[NodeId],
        *,
        under: BlobId | None = None,
    ) -> None:
        """Fetch a blob unless it is stored; raise `ShoalError` on failure."""
        if self.store.has(blob):
            return
        size = size_of(blob)
        if size is None:
            raise ShoalError(f"'{blob[:80]}' is not the name of a blob")
        waiting = self._waiting.get(blob)
        if waiting is None:
            waiting = self._waiting[blob] = self._loop.create_future()
            known = tuple(dict.fromkeys(sources))
            wanted = transfer.Wanted(blob, known, under or BlobId(""))
            if size <= PIECE_BYTES_MAX:
                self._feed(wanted)
            else:
                self._spawn(self._begin(wanted, waiting))
        self._waiters[blob] = self._waiters.get(blob, 0) + 1
        try:
            await asyncio.shield(waiting)
        finally:
            self._waiters[blob] -= 1
            if not self._waiters[blob]:
                del self._waiters[blob]
                if self._waiting.get(blob) is waiting:
                    del self._waiting[blob]
                    self._feed(transfer.Unwanted(blob))
                    self.store.leave(blob)

    async def _begin(
        self, wanted: transfer.Wanted, waiting: asyncio.Future[None]
    ) -> None:
        """Reserve disk space, then start the transfer if it is still awaited."""
        try:
            whose = wanted.sources[0] if wanted.sources else ""
            resumed = await asyncio.to_thread(self.store.begin, wanted.blob, whose)
        except Exception as error:  # noqa: BLE001 - No blob ends the node.
            self._settle(wanted.blob, _not_kept(error))
            return
        if self._waiting.get(wanted.blob) is waiting:
            self._feed(msgspec.structs.replace(wanted, resumed=resumed))
        elif wanted.blob not in self._waiting:
            self.store.leave(wanted.blob)

    async def fetch_tree(
        self,
        tree: BlobId,
        sources: Sequence[NodeId],
        holder: str,
        told: Told | None = None,
    ) -> trees.Tree:
        """Fetch a tree and all its files, held for `holder`; return the tree.

        Raises `ShoalError` if a part cannot be fetched or the tree is not valid.
        """
        self.store.hold(holder, (tree,))
        self._holders.fetching(tree, sources)
        try:
            size = size_of(tree)
            if size is None or size > trees.TREE_BYTES_MAX:
                raise ShoalError(f"'{tree[:80]}' is not the name of a tree")
            await self.fetch(tree, sources)
            found = await asyncio.to_thread(self.shelf.tree, tree)
            if isinstance(found, str):
                raise ShoalError("what was fetched is no tree", because=found)
            self.store.hold(holder, found.files())
            await self._fetch_files(tree, found, sources, told)
        finally:
            self._holders.fetched(tree)
        for source in sources[:1]:
            self._send(source, BlobHeld(blob=tree))
        return found

    async def _fetch_files(
        self,
        tree: BlobId,
        found: trees.Tree,
        sources: Sequence[NodeId],
        told: Told | None,
    ) -> None:
        missing = self.store.missing(found.files())
        todo = iter(missing)

        async def fetch_some() -> None:
            for blob in todo:
                known = (*sources, *self._holders.hints(tree))
                self._holders.wants(tree, blob)
                await self.fetch(blob, known, under=tree)

        try:
            async with asyncio.TaskGroup() as group:
                teller = group.create_task(self._tell(missing, told)) if told else None
                some = [
                    group.create_task(fetch_some())
                    for _ in range(min(AT_ONCE_MAX, len(missing)))
                ]
                if some:
                    await asyncio.wait(some)
                if teller is not None:
                    teller.cancel()
        except ExceptionGroup as failures:
            raise _first(failures) from None
        if told is not None:
            total = sum(size_of(blob) or 0 for blob in missing)
            told(total, total)

    async def _tell(self, blobs: Sequence[BlobId], told: Told) -> None:
        """Report progress every `TELL_S` until cancelled."""
        sizes = {blob: size_of(blob) or 0 for blob in blobs}
        total = sum(sizes.values())
        while True:
            here = 0
            for blob, size in sizes.items():
                if self.store.has(blob):
                    here += size
                elif blob in self._waiting:
                    left = self.transfers.left(blob) * PIECE_BYTES_MAX
                    here += max(0, size - left)
            told(min(here, total), total)
            await asyncio.sleep(TELL_S)

    # The transfer machine, and its effects.

    def _feed(self, event: transfer.Event) -> None:
        for effect in self.transfers.handle(event, self._loop.time()):
            self._perform(effect)
        self._alarm.set(self.transfers.next_deadline())

    def _perform(self, effect: transfer.Effect) -> None:
        match effect:
            case transfer.PieceAsk():
                self._send(effect.peer, effect.message)
            case transfer.WritePiece():
                pieces = self._unwritten.setdefault(effect.blob, [])
                pieces.append((effect.index, effect.data))
                if self._writing is None:
                    self._writing = self._loop.create_task(self._write())
                    self._writing.add_done_callback(self._on_done)
            case transfer.LookForPieces():
                self._spawn(self._look(effect))
            case transfer.Finish() if self.store.has(effect.blob):
                self._settle(effect.blob, None)  # It was a single piece.
            case transfer.Finish():
                self._spawn(self._finish(effect))
            case transfer.Fail():
                self._settle(effect.blob, ShoalError(effect.reason))
            case _:
                assert_never(effect)

    async def _write(self) -> None:
        """Write queued pieces in batches until none are left."""
        while self._unwritten:
            batch, self._unwritten = self._unwritten, {}
            try:
                await asyncio.to_thread(_write_all, self.store, batch)
            except Exception as error:  # noqa: BLE001 - No blob ends the node.
                for blob in batch:
                    self._feed(transfer.Unwanted(blob))
                    self._settle(blob, _not_kept(error))
                continue
            failpoints.reach("blob.written")
            for blob, pieces in batch.items():
                indices = tuple(index for index, _ in pieces)
                self._feed(transfer.PiecesWritten(blob, indices))
        self._writing = None

    async def _look(self, effect: transfer.LookForPieces) -> None:
        blob = effect.blob
        try:
            found = await asyncio.to_thread(
                self.store.check, blob, effect.first, effect.leaves
            )
        except Exception:  # noqa: BLE001 - Then all of it is fetched.
            found = []
        self._feed(transfer.PiecesFound(blob, effect.part, tuple(found)))

    async def _finish(self, effect: transfer.Finish) -> None:
        blob = effect.blob
        try:
            await asyncio.to_thread(self.store.finish, blob, effect.leaves)
        except Exception as error:  # noqa: BLE001 - No blob ends the node.
            self._settle(blob, _not_kept(error))
            return
        self._settle(blob, None)

    def _settle(self, blob: BlobId, error: ShoalError | None) -> None:
        waiting = self._waiting.pop(blob, None)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            self.store.leave(blob)
            waiting.set_exception(error)
            waiting.exception()  # Marks it retrieved: no caller may be left.

    def _send(self, peer: NodeId, message: AnyMessage) -> None:
        if self._links is not None:
            self._links.send(peer, message)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        chore = self._loop.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._on_done)

    def _on_done(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        if not chore.cancelled() and (error := chore.exception()) is not None:
            self._on_failure(error)


def _write_all(store: BlobStore, batch: dict[BlobId, list[tuple[int, bytes]]]) -> None:
    for blob, pieces in batch.items():
        if (size_of(blob) or 0) <= PIECE_BYTES_MAX:
            store.put(pieces[0][1])
        else:
            store.write(blob, pieces)


def _not_kept(error: Exception) -> ShoalError:
    return ShoalError(f"cannot keep it: {described(error)}")


def _first(failures: BaseExceptionGroup[Exception]) -> Exception:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
