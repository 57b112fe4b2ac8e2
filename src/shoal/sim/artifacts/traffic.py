"""Simulate trees of files that nodes fetch from each other, piece by piece.

Some worlds have trees of real bytes at some nodes, which others want: alone or many at
once, from several holders, of which some are gone, some have only what they fetched
themselves, and one may send wrong bytes. Some ask for a file by its name alone, which
only a published one is for. Nodes are revoked, crash and leave while they fetch and
serve; disks are slow, full or forgetful. The promises are in `transfers`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, final

import msgspec

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
from shoal.core.events import AddressesChanged, MessageReceived
from shoal.core.membership.members import TERM
from shoal.model.ids import BlobId, NodeId, OwnerId
from shoal.protocol.blob_hashing import (
    HASH_BYTES,
    Hasher,
    is_piece,
    name_of_bytes,
    node_of,
    piece_hash,
)
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.sim.artifacts.transfers import BlobErrandState, BlobPromises
from shoal.sim.node import trust
from shoal.sim.node.host import NodeSpec, address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.core.artifacts.events import BlobEvent
    from shoal.protocol.blobs import PieceWanted
    from shoal.sim.checkers.suite import Suite
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.12  # share of worlds with such trees
DISK_S: Final = (0.0005, 0.03)
SLOW_DISK_S: Final = 1.0
FULL_SHARE: Final = 0.01  # share of writes that a disk refuses
FORGOTTEN_SHARE: Final = 0.02  # share of trees that a holder has dropped from its cache
LIES: Final = (0.05, 0.5, 1.0)  # shares of a liar's pieces that are wrong
SIZES: Final = (0, 1, 5_000, PIECE_BYTES_MAX, 3 * PIECE_BYTES_MAX + 7, 400_000)
BIG_BYTES: Final = 80 * PIECE_BYTES_MAX  # more than one peer is asked for at a time
BIG_SHARE: Final = 0.3  # share of trees with such a file, which few nodes want
FEW: Final = 2
RUSH_S: Final = 0.05
LATE_S: Final = 5.0  # after the last fault; what is wanted then must arrive
SWEEP_S: Final = 1.0

Kind = Literal["tree", "file", "published"]


class SimTree(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that one node has from the start."""

    home: NodeId
    name: BlobId
    files: dict[BlobId, bytes]
    data: bytes  # of the tree itself


class BlobErrand(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a node wants at some time, from these sources."""

    at_s: float
    node: NodeId
    tree: int
    kind: Kind
    sources: tuple[NodeId, ...]
    tries: int = 1
    dropped_after_s: float | None = None
    must_arrive: bool = False


class BlobScript(msgspec.Struct, frozen=True, kw_only=True):
    """Trees, who wants them, and what goes wrong with the nodes that have them."""

    nodes: tuple[NodeSpec, ...]
    trees: tuple[SimTree, ...]
    errands: tuple[BlobErrand, ...]
    liars: dict[NodeId, float]
    crashes: tuple[tuple[float, NodeId, float], ...]  # time, node, duration
    leaves: tuple[float, NodeId] | None
    revoked: tuple[float, NodeId] | None
    heal_s: float


def draw_blob_script(
    rng: Random, staying: Sequence[NodeId], heal_s: float
) -> BlobScript | None:
    """Draw trees and errands for nodes that stay; None if this world has none."""
    if rng.random() >= WORLDS_SHARE:
        return None
    extra = tuple(_holder(number) for number in range(rng.randint(3, 6)))
    names = [spec.id for spec in extra]
    everybody = [*names, *staying]
    homes = [rng.choice(everybody) for _ in range(rng.randint(1, 3))]
    made = tuple(_draw_tree(rng, home) for home in homes)
    liars: dict[NodeId, float] = {}
    may_lie = [n for n in names if n not in homes]
    if rng.random() < 0.5 and may_lie:  # Three trees may be at all three holders.
        liars[rng.choice(may_lie)] = rng.choice(LIES)
    others = [n for n in names if n not in liars]
    leaves = revoked = None
    if rng.random() < 0.4:
        leaves = (rng.uniform(1.0, heal_s), others.pop(rng.randrange(len(others))))
    if others and rng.random() < 0.5:
        revoked = (rng.uniform(1.0, heal_s), rng.choice(others))
    gone = [each[1] for each in (leaves, revoked) if each is not None]
    return BlobScript(
        nodes=extra,
        trees=made,
        errands=tuple(
            errand
            for number, tree in enumerate(made)
            for errand in _draw_errands(
                rng, number, tree, everybody, [*liars, *gone], heal_s
            )
        ),
        liars=liars,
        crashes=tuple(
            (rng.uniform(0.5, heal_s), rng.choice(names), rng.uniform(0.2, 10.0))
            for _ in range(rng.randint(0, 4))
        ),
        leaves=leaves,
        revoked=revoked,
        heal_s=heal_s,
    )


def _holder(number: int) -> NodeSpec:
    id_ = NodeId(f"b{number}")
    grant = trust.grant(id_, ("scheduler",), OwnerId("ann"))
    return NodeSpec(id=id_, roles=(), grant=grant)


def _draw_tree(rng: Random, home: NodeId) -> SimTree:
    contents = [rng.randbytes(rng.choice(SIZES)) for _ in range(rng.randint(1, 5))]
    if rng.random() < BIG_SHARE:
        contents.append(rng.randbytes(BIG_BYTES))
    files = {name_of_bytes(data): data for data in contents}
    entries = [
        trees.TreeEntry(f"f{number}", "file", name) for number, name in enumerate(files)
    ]
    data = trees.encode(trees.make(rng.randbytes(16), entries))
    return SimTree(home=home, name=name_of_bytes(data), files=files, data=data)


def _draw_errands(
    rng: Random,
    number: int,
    tree: SimTree,
    everybody: Sequence[NodeId],
    unsure: Sequence[NodeId],
    heal_s: float,
) -> list[BlobErrand]:
    """Draw who wants a tree: a crowd at once, some later, and one after all faults."""
    others = [node for node in everybody if node != tree.home]
    rush_s = rng.uniform(0.5, heal_s)
    is_big = any(len(data) == BIG_BYTES for data in tree.files.values())
    most = min(FEW, len(others)) if is_big else len(others)
    crowd = rng.sample(others, rng.randint(min(2, most), most))
    errands = [
        BlobErrand(
            at_s=rush_s + rng.uniform(0.0, RUSH_S),
            node=node,
            tree=number,
            kind="tree",
            sources=_draw_sources(rng, tree.home, others, node),
            tries=rng.choice((1, 2)),
            dropped_after_s=rng.uniform(0.0, 5.0) if rng.random() < 0.15 else None,
        )
        for node in crowd
    ]
    kinds: tuple[Kind, ...] = ("tree", "tree", "file", "published")
    errands += [
        BlobErrand(
            at_s=rng.uniform(0.5, heal_s),
            node=(node := rng.choice(others)),
            tree=number,
            kind=rng.choice(kinds),
            sources=_draw_sources(rng, tree.home, others, node),
        )
        for _ in range(rng.randint(1, FEW if is_big else 5))
    ]
    if tree.home not in unsure:
        errands.append(
            BlobErrand(
                at_s=heal_s + LATE_S,
                node=rng.choice([node for node in others if node not in unsure]),
                tree=number,
                kind="tree",
                sources=(tree.home,),
                tries=2,
                must_arrive=True,
            )
        )
    return errands


def _draw_sources(
    rng: Random, home: NodeId, others: Sequence[NodeId], node: NodeId
) -> tuple[NodeId, ...]:
    """Draw where a node looks: at the home of a tree, and at others who may have it."""
    also = [each for each in others if each != node]
    found = [home, *rng.sample(also, min(len(also), rng.choice((0, 0, 1, 2, 4))))]
    rng.shuffle(found)
    return tuple(found)


class _SimStore(msgspec.Struct):
    """What one node has on its disk; it survives crashes."""

    whole: dict[BlobId, bytes] = {}
    partial: dict[BlobId, dict[int, bytes]] = {}


@final
class BlobTraffic:
    """The disks of one world, and who waits for what."""

    def __init__(self, script: BlobScript, world: World, suite: Suite) -> None:
        self.arrived = 0
        listed = {tree.name: frozenset(tree.files) for tree in script.trees}
        self.promises = BlobPromises(
            suite.violations, world.agenda, suite.revocations, listed
        )
        self._script = script
        self._world = world
        self._rng = world.stream("blobs")
        self._stores: dict[NodeId, _SimStore] = {}
        self._errands: dict[int, BlobErrand] = {}  # by token; each is used once

    @property
    def performers(self) -> Mapping[type, Callable[[SimHost, Any], None]]:
        """The performer of each effect."""
        return {
            MakeRoom: self._make_room,
            StorePiece: self._store,
            FindPieces: self._find,
            FinishBlob: self._finish,
            LeaveBlob: self._leave_blob,
            ReadTree: self._read_tree,
            ReadPieces: self._read_pieces,
            AnswerFetch: self._answer,
        }

    def schedule(self) -> None:
        """Add the nodes and their trees, and schedule the script."""
        world, agenda, script = self._world, self._world.agenda, self._script
        for spec in script.nodes:
            world.add(spec)
        for tree in script.trees:
            store = self._store_of(tree.home)
            store.whole.update(tree.files)
            store.whole[tree.name] = tree.data
        for host in world.hosts.values():
            # So that those who hold a tree can be named to others.
            host.feed(AddressesChanged((address_of(host.id),)))
        for token, errand in enumerate(script.errands, start=1):
            self._errands[token] = errand
            agenda.at(errand.at_s, self._want, token)
        for at_s, node, down_s in script.crashes:
            agenda.at(at_s, world.crash, node)
            agenda.at(at_s + down_s, world.restart, node)
        if script.leaves is not None:
            agenda.at(script.leaves[0], world.leave, script.leaves[1])
        if script.revoked is not None:
            agenda.at(script.revoked[0], self._revoke, script.revoked[1])
        agenda.after(SWEEP_S, self._sweep)

    def settle(self) -> None:
        """Run the healed world until every fetch has ended."""
        world, script = self._world, self._script
        world.run(max(world.now, script.heal_s + LATE_S + SWEEP_S))
        while not world.agenda.stopped and self.promises.open():
            world.run(world.now + 1.0)
            self.promises.check_over(script.heal_s + LATE_S)

    def _sweep(self) -> None:
        self.promises.sweep(self._world.hosts.values())
        self._world.agenda.after(SWEEP_S, self._sweep)

    def _revoke(self, node: NodeId) -> None:
        revocation = trust.revocation(node, serial=TERM - 1)
        for host in self._world.hosts.values():
            if host.id != node:
                self._world.feed(host.id, MessageReceived(trust.ROOT, revocation))

    # Who wants what.

    def _want(self, token: int) -> None:
        errand = self._errands[token]
        host, tree = self._world.hosts[errand.node], self._script.trees[errand.tree]
        if not host.up:
            return
        what = f"{errand.kind} {tree.name[:8]} for {host.id}, number {token}"
        state = BlobErrandState(host, host.life, what, errand.must_arrive)
        self.promises.began(token, state)
        if errand.kind == "tree":
            sources, tries = errand.sources, errand.tries
            host.feed(TreeWanted(token, tree.name, sources, tries))
        else:
            blob = self._file_of(errand)
            if errand.kind == "published":
                self._publish(tree.home, blob)
            if blob in self._store_of(host.id).whole:
                self.promises.dropped(token)  # It has the file from the tree.
                return
            host.feed(BlobWanted(token, blob, errand.sources))
        if errand.dropped_after_s is not None:
            drop = (host, host.life, token)
            self._world.agenda.after(errand.dropped_after_s, self._drop, *drop)

    def _publish(self, home: NodeId, blob: BlobId) -> None:
        """Let a task of a node give out a file that it has."""
        host = self._world.hosts[home]
        if host.up:
            self.promises.published(host, blob)
            host.feed(BlobGivenOut(blob))

    def _drop(self, host: SimHost, life: int, token: int) -> None:
        if host.up and host.life == life and token in self._errands:
            self.promises.dropped(token)
            del self._errands[token]
            host.feed(FetchDropped(token))

    def _file_of(self, errand: BlobErrand) -> BlobId:
        return next(iter(self._script.trees[errand.tree].files))

    def _answer(self, host: SimHost, effect: AnswerFetch) -> None:
        errand = self._errands.pop(effect.token, None)
        if errand is None:
            return  # It was dropped when this was on its way.
        here, tree = self._store_of(host.id).whole, self._script.trees[errand.tree]
        wanted = {tree.name: tree.data, **tree.files}
        if errand.kind != "tree":
            blob = self._file_of(errand)
            wanted = {blob: tree.files[blob]}
        self.arrived += not effect.reason
        self.promises.ended(
            effect.token,
            effect.reason,
            is_right=all(here.get(blob) == data for blob, data in wanted.items()),
            may_have=errand.kind == "tree" or self._may_have(errand),
        )

    def _may_have(self, errand: BlobErrand) -> bool:
        """Whether a file was given out, or is in a tree that the node was told."""
        blob, script = self._file_of(errand), self._script
        is_told = any(
            each.kind == "tree"
            and each.node == errand.node
            and blob in script.trees[each.tree].files
            for each in script.errands
        )
        nodes = self._world.hosts
        return is_told or any(self.promises.is_published(n, blob) for n in nodes)

    # Disks.

    def _store_of(self, node: NodeId) -> _SimStore:
        return self._stores.setdefault(node, _SimStore())

    def _later(self, host: SimHost, fact: Callable[[], BlobEvent]) -> None:
        """Let a disk take its time, and tell the machine what came of it."""
        delay_s = self._rng.uniform(*DISK_S)
        if host.disk.slow:
            delay_s += self._rng.uniform(0.0, SLOW_DISK_S)
        self._world.agenda.after(delay_s, _tell, host, host.life, fact)

    def _is_full(self) -> bool:
        return self._rng.random() < FULL_SHARE and self._world.now < self._script.heal_s

    def _make_room(self, host: SimHost, effect: MakeRoom) -> None:
        fetch, blob = effect.fetch, effect.blob
        reason = "the disk is full" if self._is_full() else ""
        partial = self._store_of(host.id).partial
        resumed = blob in partial
        if not reason:
            partial.setdefault(blob, {})
        self._later(host, lambda: RoomMade(fetch, blob, resumed, reason))

    def _store(self, host: SimHost, effect: StorePiece) -> None:
        store, is_full = self._store_of(host.id), self._is_full()

        def write() -> PiecesStored:
            if is_full:
                return PiecesStored(effect.fetch, reason="the disk is full")
            if not is_piece(effect.blob, effect.leaf, effect.data):
                return PiecesStored(effect.fetch, wrong=(effect.index,))
            if not effect.leaf:
                store.whole[effect.blob] = effect.data
            elif effect.blob in store.partial:
                store.partial[effect.blob][effect.index] = effect.data
            else:
                return PiecesStored(effect.fetch, reason="it had to make room")
            return PiecesStored(effect.fetch, stored=(effect.index,))

        self._later(host, write)

    def _find(self, host: SimHost, effect: FindPieces) -> None:
        here = self._store_of(host.id).partial.get(effect.blob, {})
        leaves = effect.leaves
        found = tuple(
            effect.first + nth
            for nth in range(len(leaves) // HASH_BYTES)
            if piece_hash(0, here.get(effect.first + nth, b"?"))
            == leaves[nth * HASH_BYTES : (nth + 1) * HASH_BYTES]
        )
        self._later(host, lambda: PiecesFound(effect.fetch, effect.part, found))

    def _finish(self, host: SimHost, effect: FinishBlob) -> None:
        store = self._store_of(host.id)

        def finish() -> BlobFinished:
            pieces = store.partial.pop(effect.blob, {})
            store.whole[effect.blob] = b"".join(pieces[n] for n in sorted(pieces))
            return BlobFinished(effect.fetch)

        self._later(host, finish)

    def _leave_blob(self, host: SimHost, effect: LeaveBlob) -> None:
        """Keep what was fetched for the next who wants it, or lose it at once."""
        if self._rng.random() < FORGOTTEN_SHARE:
            self._store_of(host.id).partial.pop(effect.blob, None)

    def _read_tree(self, host: SimHost, effect: ReadTree) -> None:
        whole = self._store_of(host.id).whole

        def read() -> TreeRead:
            data = whole.get(effect.tree)
            found = "it is not held here" if data is None else trees.decode(data)
            if isinstance(found, str):
                is_here = data is not None
                return TreeRead(
                    effect.token, effect.tree, is_here=is_here, reason=found
                )
            files = tuple(found.files())
            missing = tuple(blob for blob in files if blob not in whole)
            return TreeRead(effect.token, effect.tree, files, missing)

        self._later(host, read)

    def _read_pieces(self, host: SimHost, effect: ReadPieces) -> None:
        life = host.life
        self.promises.reading(host, life, 1)

        def read() -> PiecesRead:
            self.promises.reading(host, life, -1)
            found = tuple(self._pieces(host.id, wanted) for wanted in effect.wanted)
            return PiecesRead(effect.peer, found)

        self._later(host, read)

    def _pieces(self, node: NodeId, wanted: PieceWanted) -> PiecesOf:
        data = self._store_of(node).whole.get(wanted.blob)
        if data is None:
            return PiecesOf(wanted.blob, reason="it is not held here")
        pieces = tuple(
            (level, index, self._said(node, _piece(data, level, index)))
            for level, index in wanted.pieces
        )
        return PiecesOf(wanted.blob, pieces)

    def _said(self, node: NodeId, piece: bytes) -> bytes:
        """Return a piece as a node sends it, which may lie."""
        if self._rng.random() >= self._script.liars.get(node, 0.0):
            return piece
        if not piece or self._rng.random() < 0.2:
            return piece + b"!"
        return bytes([piece[0] ^ 1]) + piece[1:]


def _piece(data: bytes, level: int, index: int) -> bytes:
    if level == 0:
        return data[index * PIECE_BYTES_MAX : (index + 1) * PIECE_BYTES_MAX]
    hasher = Hasher()
    hasher.update(data)
    return node_of(len(data), hasher.leaves(), level, index) or b""


def _tell(host: SimHost, life: int, fact: Callable[[], BlobEvent]) -> None:
    if host.up and host.life == life:
        host.feed(fact())
