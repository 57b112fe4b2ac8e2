"""Simulate trees of files that nodes fetch from each other, piece by piece.

Some worlds have trees of real bytes at some nodes, which others want: alone or many at
once, from several holders, of which some are gone, some have only what they fetched
themselves, and one may send wrong bytes. Some ask for a file by its name alone, which
only a published one is for. Nodes are revoked, crash and leave while they fetch and
serve; disks are slow, full or forgetful. The promises are in `transfers`.
"""

from __future__ import annotations

import math
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.artifacts.events import BlobGivenOut
from shoal.core.events import AddressesChanged
from shoal.model.ids import BlobId, NodeId, OwnerId
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.sim.artifacts.transfers import BlobErrandState
from shoal.sim.node import trust
from shoal.sim.node.blobs import PackedTree, pack_tree
from shoal.sim.node.host import NodeSpec, address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.sim.checkers.suite import Suite
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.12  # share of worlds with such trees
LIES: Final = (0.05, 0.5, 1.0)  # shares of a liar's pieces that are wrong
SIZES: Final = (0, 1, 5_000, PIECE_BYTES_MAX, 3 * PIECE_BYTES_MAX + 7, 400_000)
BIG_BYTES: Final = 80 * PIECE_BYTES_MAX  # more than one peer is asked for at a time
BIG_SHARE: Final = 0.3  # share of trees with such a file, which few nodes want
FEW: Final = 2
RUSH_S: Final = 0.05
LATE_S: Final = 5.0  # after the last fault; what is wanted then must arrive
SWEEP_S: Final = 1.0
LOST_S: Final = 3.0  # that who may be disappointed waits for peers that are gone

Kind = Literal["tree", "file", "published"]


class SimTree(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that one node has from the start."""

    home: NodeId
    packed: PackedTree


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
    return SimTree(home=home, packed=pack_tree(rng.randbytes(16), contents))


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
    is_big = any(len(data) == BIG_BYTES for data in tree.packed.files.values())
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


@final
class BlobTraffic:
    """Who has which trees in one world, and who waits for them."""

    def __init__(self, script: BlobScript, world: World, suite: Suite) -> None:
        self.arrived = 0
        self._script = script
        self._world = world
        self._promises = suite.transfers
        self._open: dict[int, int] = {}  # tokens of errands that have not ended

    def schedule(self) -> None:
        """Add the nodes and their trees, and schedule the script."""
        world, agenda, script = self._world, self._world.agenda, self._script
        for spec in script.nodes:
            world.add(spec)
        for tree in script.trees:
            world.hosts[tree.home].blobs.keep(tree.packed)
        for host in world.hosts.values():
            host.blobs.lies = script.liars.get(host.id, 0.0)
            # So that those who hold a tree can be named to others.
            host.feed(AddressesChanged((address_of(host.id),)))
        for number, errand in enumerate(script.errands, start=1):
            agenda.at(errand.at_s, self._want, number, errand)
        for at_s, node, down_s in script.crashes:
            agenda.at(at_s, world.crash, node)
            agenda.at(at_s + down_s, world.restart, node)
        if script.leaves is not None:
            agenda.at(script.leaves[0], world.leave, script.leaves[1])
        if script.revoked is not None:
            agenda.at(script.revoked[0], self._world.revoke, script.revoked[1])

    def settle(self) -> None:
        """Run the healed world until every fetch has ended."""
        world, script = self._world, self._script
        world.run(max(world.now, script.heal_s + LATE_S + 1.0))
        while not world.agenda.stopped and self._promises.open():
            world.run(world.now + 1.0)
            self._promises.check_over(script.heal_s + LATE_S)

    # Who wants what.

    def _want(self, number: int, errand: BlobErrand) -> None:
        host, tree = self._world.hosts[errand.node], self._tree_of(errand)
        if not host.up:
            return
        what = f"{errand.kind} {tree.name[:8]} for {host.id}, number {number}"
        state = BlobErrandState(host, host.life, what, errand.must_arrive)
        self._promises.began(number, state)
        done = partial(self._ended, number, errand)
        blobs, sources = host.blobs, errand.sources
        if errand.kind == "tree":
            token = blobs.fetch_tree(tree.name, sources, done, tries=errand.tries)
        else:
            blob = self._file_of(errand)
            if errand.kind == "published":
                self._publish(self._script.trees[errand.tree].home, blob)
            if blob in blobs.whole:
                self._promises.dropped(number)  # It has the file from the tree.
                return
            lost_s = math.inf if errand.must_arrive else LOST_S
            token = blobs.fetch(blob, sources, done, lost_s)
        self._open[number] = token
        if errand.dropped_after_s is not None:
            host.later(errand.dropped_after_s, partial(self._drop, host, number))

    def _publish(self, home: NodeId, blob: BlobId) -> None:
        """Let a task of a node give out a file that it has."""
        host = self._world.hosts[home]
        if host.up:
            self._promises.published(host, blob)
            host.feed(BlobGivenOut(blob))

    def _drop(self, host: SimHost, number: int) -> None:
        token = self._open.pop(number, None)
        if token is not None:
            self._promises.dropped(number)
            host.blobs.drop(token)

    def _tree_of(self, errand: BlobErrand) -> PackedTree:
        return self._script.trees[errand.tree].packed

    def _file_of(self, errand: BlobErrand) -> BlobId:
        return next(iter(self._tree_of(errand).files))

    def _ended(self, number: int, errand: BlobErrand, reason: str) -> None:
        if self._open.pop(number, None) is None:
            return  # It was dropped just now.
        wanted, here = self._tree_of(errand).blobs, self._world.hosts[errand.node].blobs
        if errand.kind != "tree":
            blob = self._file_of(errand)
            wanted = {blob: wanted[blob]}
        self.arrived += not reason
        self._promises.ended(
            number,
            reason,
            is_right=all(here.whole.get(blob) == data for blob, data in wanted.items()),
            may_have=errand.kind == "tree" or self._may_have(errand),
        )

    def _may_have(self, errand: BlobErrand) -> bool:
        """Whether a file was given out, or is in a tree that the node was told."""
        blob, script = self._file_of(errand), self._script
        is_told = any(
            each.kind == "tree"
            and each.node == errand.node
            and blob in self._tree_of(each).files
            for each in script.errands
        )
        nodes = self._world.hosts
        return is_told or any(self._promises.is_published(n, blob) for n in nodes)
