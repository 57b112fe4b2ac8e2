"""How a scheduler looks for workers that it does not know."""

from random import Random

from shoal.core.deadlines import DeadlineHeap
from shoal.core.discovery.worker_search import LARGE_FROM, RATION_S, WorkerSearch
from shoal.core.events import Effect, LookUp, Publish, Spread
from shoal.model.ids import NodeId
from shoal.model.resources import Profile

HOUR_S = 3_600.0


def an_hour_of(nodes: int) -> list[Effect]:
    """Search in vain for an hour, each minute for something new."""
    search = WorkerSearch(NodeId("me"), None, Random(1), DeadlineHeap())
    search.on_size(nodes)
    effects: list[Effect] = []
    for second in range(int(HOUR_S)):
        if second % 60 == 0:
            search.want({Profile(cpu_milli=1_000 + second): 8}, float(second))
        effects += search.due(1, float(second))
    return effects


def test_what_all_hear_is_rationed_by_the_number_of_nodes() -> None:
    small, large = an_hour_of(100), an_hour_of(100 * LARGE_FROM)

    assert sum(isinstance(each, Publish) for each in small) > 60
    # One for each ration, and the first is free.
    most = 2 + HOUR_S / (0.9 * 100 * RATION_S)
    assert 1 <= sum(isinstance(each, Publish) for each in large) <= most


def test_neighbours_and_the_dht_are_asked_meanwhile() -> None:
    large = an_hour_of(100 * LARGE_FROM)

    assert sum(isinstance(each, Spread) for each in large) > 60
    assert sum(isinstance(each, LookUp) for each in large) > 60
