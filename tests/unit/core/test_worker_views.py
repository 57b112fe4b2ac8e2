"""A scheduler's view of a worker, whatever order messages come in."""

from shoal.core.deadlines import DeadlineHeap
from shoal.core.discovery.worker_views import AHEAD_TOLD_S, WorkerViews
from shoal.model.ids import NodeId, RequestId
from shoal.model.resources import Capacity, Profile
from shoal.protocol.messages import Inventory, InventoryChanged, Load, Rank, Waiting

HERON = NodeId("heron")
PAUSED = "the owner is using the machine"


def inventory(seq: int, terms: str = "") -> Inventory:
    return Inventory(
        epoch=1,
        seq=seq,
        capacity=Capacity(cpu_milli=4_000),
        load=Load(cpu_milli=4_000),
        drivers=("process",),
        terms=terms,
    )


def views() -> WorkerViews:
    found = WorkerViews(NodeId("otter"), DeadlineHeap())
    assert found.on_inventory(HERON, inventory(1, PAUSED), now=0.0)
    return found


def terms(found: WorkerViews) -> str:
    [index] = found.table.grid.order().tolist()
    return found.table.row(index).terms


def test_a_load_that_overtakes_its_inventory_asks_for_it() -> None:
    known = views()

    late = InventoryChanged(epoch=1, seq=3, load=Load(cpu_milli=1_000), since=2)

    assert known.on_load(HERON, late, now=1.0) is None
    assert known.on_inventory(HERON, inventory(2), now=2.0)
    assert terms(known) == ""
    assert known.on_load(HERON, late, now=3.0)


def test_an_inventory_that_a_load_has_overtaken_counts_but_for_its_load() -> None:
    known = views()
    newer = InventoryChanged(epoch=1, seq=3, load=Load(cpu_milli=1_000))
    assert known.on_load(HERON, newer, now=1.0)

    assert known.on_inventory(HERON, inventory(2), now=2.0)

    [index] = known.table.grid.order().tolist()
    assert terms(known) == ""
    assert known.table.row(index).cpu_milli == 1_000
    assert not known.on_inventory(HERON, inventory(1, PAUSED), now=3.0)


def test_gangs_that_workers_tell_of_load_links_until_the_worker_is_forgotten() -> None:
    known = views()
    known.on_inventory(NodeId("tern"), inventory(1), now=0.0)
    load = Load(cpu_milli=4_000)
    for name in ("heron", "tern"):
        told = InventoryChanged(epoch=1, seq=2, load=load, gangs=("mark",))
        assert known.on_load(NodeId(name), told, now=1.0) is False, "no room came free"

    assert sorted(known.table.links.crossing.values()) == [1, 1]
    late = InventoryChanged(epoch=1, seq=1, load=load)
    known.on_load(HERON, late, now=2.0)
    assert known.table.links.crossing
    known.forget(HERON)
    assert not known.table.links.crossing


def test_room_kept_for_a_better_rank_is_known_for_a_moment() -> None:
    known = views()
    one, two = Profile(cpu_milli=1_000), Profile(cpu_milli=2_000)
    waits = Waiting(Rank(0, 9.0, NodeId("ibis"), RequestId("i/1/1")), two, 2)
    ahead = InventoryChanged(epoch=1, seq=2, load=Load(cpu_milli=4_000), ahead=(waits,))
    known.on_load(HERON, ahead, now=1.0)

    def kept(
        age_s: float, profile: Profile = one, at: float = 1.0, priority: int = 0
    ) -> bool:
        rank = Rank(priority, age_s, NodeId("otter"), RequestId(""))
        return known.kept_from(rank, profile, at) == [HERON]

    assert kept(8.9)
    assert not kept(9.1)
    assert not kept(0.0, priority=1)
    assert not kept(0.0, Profile()), "it takes nothing of what the other needs"
    assert not kept(0.0, at=1.1 + AHEAD_TOLD_S), "the other may be gone"


def test_a_task_hears_when_room_is_no_longer_kept_from_it() -> None:
    """The load need not change: the room was free all the time."""
    known = views()
    waits = Waiting(
        Rank(0, 9.0, NodeId("ibis"), RequestId("i/1/1")), Profile(cpu_milli=4_000), 1
    )
    load, rank = Load(cpu_milli=4_000), Rank(0, 0.0, NodeId("otter"), RequestId(""))

    def tell(seq: int, ahead: tuple[Waiting, ...], now: float) -> None:
        told = InventoryChanged(epoch=1, seq=seq, load=load, ahead=ahead)
        known.on_load(HERON, told, now)

    def kept(now: float) -> bool:
        return known.kept_from(rank, Profile(cpu_milli=1_000), now) == [HERON]

    tell(2, (waits,), 1.0)
    assert not known.is_kept_no_more(1.0 + AHEAD_TOLD_S), "nobody was kept from it"

    tell(3, (waits,), 10.0)
    assert kept(10.0)
    assert not known.is_kept_no_more(10.0)
    tell(4, (), 11.0)
    assert known.is_kept_no_more(11.0), "nobody waits there any more"
    assert not known.is_kept_no_more(99.0)

    tell(5, (waits,), 100.0)
    assert kept(101.0)
    assert known.is_kept_no_more(100.0 + AHEAD_TOLD_S), "nothing more is heard of it"
    assert not kept(100.0 + AHEAD_TOLD_S)


def test_room_that_suffices_for_both_is_kept_from_nobody() -> None:
    known = views()
    waits = Waiting(
        Rank(0, 9.0, NodeId("ibis"), RequestId("i/1/1")), Profile(cpu_milli=2_000), 1
    )
    load = Load(cpu_milli=4_000)
    known.on_load(
        HERON, InventoryChanged(epoch=1, seq=2, load=load, ahead=(waits,)), now=1.0
    )
    rank = Rank(0, 0.0, NodeId("otter"), RequestId(""))

    assert known.kept_from(rank, Profile(cpu_milli=2_000), 1.0) == []
    assert known.kept_from(rank, Profile(cpu_milli=2_001), 1.0) == [HERON]


def test_room_is_not_kept_from_whom_it_is_kept_for() -> None:
    known = views()
    ours = Rank(0, 60.0, NodeId("otter"), RequestId("o/1/1"))
    waits = Waiting(ours, Profile(cpu_milli=4_000), 1)
    load = Load(cpu_milli=4_000)
    known.on_load(
        HERON, InventoryChanged(epoch=1, seq=2, load=load, ahead=(waits,)), now=1.0
    )
    younger = Rank(0, 1.0, NodeId("otter"), RequestId(""))

    assert known.kept_from(younger, Profile(cpu_milli=4_000), 1.0) == []


def test_a_worker_that_names_countless_who_wait_for_nothing_costs_no_time() -> None:
    known = views()
    waits = Waiting(
        Rank(0, 9.0, NodeId("ibis"), RequestId("i/1/1")), Profile(), 1 << 53
    )
    load = Load(cpu_milli=4_000)
    known.on_load(
        HERON, InventoryChanged(epoch=1, seq=2, load=load, ahead=(waits,)), now=1.0
    )
    rank = Rank(0, 0.0, NodeId("otter"), RequestId(""))

    assert known.kept_from(rank, Profile(cpu_milli=1_000), 1.0) == []
