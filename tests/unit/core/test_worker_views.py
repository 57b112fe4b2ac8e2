"""A scheduler's view of a worker, whatever order messages come in."""

from shoal.core.deadlines import DeadlineHeap
from shoal.core.discovery.worker_views import WorkerViews
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity
from shoal.protocol.messages import Inventory, InventoryChanged, Load

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
