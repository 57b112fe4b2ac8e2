"""Records in a DHT that keeps twenty for each key, as the real one does."""

from collections.abc import Awaitable, Callable

import trio
from tests.unit.net.shoals import SHOAL, Gatekeeper, identity
from tests.unit.net_libp2p.pipes_in_memory import run

from shoal.model.ids import NodeId
from shoal.net.libp2p.finding import dht_keys
from shoal.net.libp2p.finding.dht import PACE_S, DhtDirectory
from shoal.net.libp2p.settings import Greeting, Libp2pSettings
from shoal.net.libp2p.thread import notices
from shoal.net.libp2p.thread.shared_state import SharedState
from shoal.protocol.messages import Hello

ROOM = 20
KEEPER = identity(999).node
ADDRESS = "/ip4/192.0.2.7/tcp/4002"


class Store:
    """The records of the whole DHT, all on one node."""

    def __init__(self) -> None:
        self.records: dict[bytes, dict[NodeId, tuple[str, ...]]] = {}
        self.wall_s = 1_000_000.0
        self.writes = 0


class View:
    """What one node sees of the store. One that is `alone` knows nobody."""

    def __init__(self, store: Store, node: NodeId) -> None:
        self.store = store
        self.node = node
        self.alone = False

    def connected(self) -> list[NodeId]:
        return [] if self.alone else [KEEPER]

    def closest_known(self, key: bytes) -> list[NodeId]:
        return self.connected()

    async def closest(self, key: bytes) -> list[NodeId]:
        await trio.lowlevel.checkpoint()
        return self.connected()

    async def provide(self, key: bytes) -> bool:
        await trio.lowlevel.checkpoint()
        self.store.writes += 1
        rows = self.store.records.setdefault(key, {})
        if len(rows) < ROOM:
            rows[self.node] = (f"{ADDRESS}/tls/p2p/{self.node}",)
        return True

    def records_here(self, key: bytes) -> list[tuple[NodeId, tuple[str, ...]]]:
        return []

    async def records_at(
        self, peer: NodeId, key: bytes
    ) -> list[tuple[NodeId, tuple[str, ...]]]:
        await trio.lowlevel.checkpoint()
        return list(self.store.records.get(key, {}).items())


class Member:
    """A node and its directory."""

    def __init__(self, store: Store, number: int) -> None:
        someone = identity(number)
        greeting = Greeting(hello=Hello, admit=Gatekeeper())
        self.node = someone.node
        self.shared = SharedState(someone, Libp2pSettings(shoal=SHOAL), greeting)
        self.view = View(store, self.node)
        self.directory = DhtDirectory(self.shared, self.view, lambda: store.wall_s)

    def provide(self, *wanted: str) -> None:
        self.shared.keys = wanted
        self.directory.changed()

    async def find(self, key: str, limit: int = 64) -> list[NodeId]:
        await self.directory.look_up(1, key, limit)
        (found,) = self.shared.notices.take(10)
        assert isinstance(found, notices.Found)
        return [provider.node for provider in found.providers]


def play(
    workers: int, scene: Callable[[Store, list[Member], Member], Awaitable[None]]
) -> None:
    """Play a scene with workers whose directories run, and one who asks."""

    async def stage() -> None:
        store = Store()
        members = [Member(store, number) for number in range(workers)]
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(member.directory.run)
            await scene(store, members, Member(store, 500))
            nursery.cancel_scope.cancel()

    run(stage)


def test_a_rare_capability_is_found_whole() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        for worker in workers:
            worker.provide("gpu-model/H100")
        await trio.sleep(60)

        found = await asking.find("gpu-model/H100")

        assert sorted(found) == sorted(worker.node for worker in workers)

    play(7, scene)


def test_of_a_common_capability_a_sample_is_found_beyond_what_a_key_holds() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        for worker in workers:
            worker.provide("any")
        await trio.sleep(60)

        # Trio starts tasks in an order of its own, so who is in a key is chance.
        found = [set(await asking.find("any")) for _ in range(40)]

        assert all(len(sample) > ROOM for sample in found)
        assert len(set.union(*found)) > 60, "samples differ"

    play(80, scene)


def test_no_more_are_reported_than_were_asked_for() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        for worker in workers:
            worker.provide("any")
        await trio.sleep(60)

        assert len(await asking.find("any", limit=3)) == 3

    play(9, scene)


def test_nobody_is_found_for_what_nobody_provides() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        assert await asking.find("any") == []

    play(1, scene)


def test_a_node_that_went_away_is_forgotten_after_two_spans() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        workers[0].provide("any")
        await trio.sleep(60)
        workers[0].view.alone = True  # It writes no more.

        store.wall_s += dht_keys.SPAN_S
        hint = await asking.find("any")
        store.wall_s += dht_keys.SPAN_S
        later = await asking.find("any")

        assert hint == [workers[0].node]
        assert later == []

    play(1, scene)


def test_keys_are_written_slowly_and_once_in_a_span() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        workers[0].provide(*(f"key/{number}" for number in range(10)))

        await trio.sleep(0.1)
        at_once = store.writes
        await trio.sleep(10 * PACE_S * 1.3)
        soon = store.writes
        await trio.sleep(300)

        assert at_once == 1
        assert soon == 10
        assert store.writes == 10

    play(1, scene)


def test_a_key_that_is_no_longer_provided_is_not_written_again() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        workers[0].provide("a", "b")
        await trio.sleep(60)

        workers[0].provide("b")
        store.wall_s += 2 * dht_keys.SPAN_S
        await trio.sleep(60)

        assert await asking.find("a") == []
        assert await asking.find("b") == [workers[0].node]

    play(1, scene)


def test_a_node_that_knows_nobody_provides_as_soon_as_it_does() -> None:
    async def scene(store: Store, workers: list[Member], asking: Member) -> None:
        workers[0].view.alone = True
        workers[0].provide("any")
        await trio.sleep(60)
        assert store.writes == 0

        workers[0].view.alone = False
        await trio.sleep(3 * PACE_S)

        assert await asking.find("any") == [workers[0].node]

    play(1, scene)
