"""Workers that refused are left alone for a while, and asked again after news."""

from __future__ import annotations

from shoal.core.deadlines import DeadlineHeap
from shoal.core.scheduling.refusal_cache import REFUSED_S, RefusalCache
from shoal.model.ids import NodeId
from shoal.model.resources import Profile

ANN, BEN = NodeId("ann"), NodeId("ben")
SMALL, LARGE = Profile(cpu_milli=1_000), Profile(cpu_milli=8_000)


def test_a_refusal_is_of_one_profile_and_keeps_its_reason() -> None:
    refusal_cache = RefusalCache(DeadlineHeap())

    refusal_cache.refused(LARGE, ANN, "cpu 4 < 8", 0.0)

    assert refusal_cache.of(LARGE) == {ANN: "cpu 4 < 8"}
    assert refusal_cache.of(SMALL) == {}


def test_a_refusal_is_forgotten_after_a_while() -> None:
    heap = DeadlineHeap()
    refusal_cache = RefusalCache(heap)
    refusal_cache.refused(LARGE, ANN, "full", 0.0)
    refusal_cache.refused(LARGE, BEN, "full", 1.0)

    assert not refusal_cache.due(REFUSED_S - 0.1)
    assert refusal_cache.due(REFUSED_S)
    assert refusal_cache.of(LARGE) == {BEN: "full"}
    assert heap.next() == 1.0 + REFUSED_S


def test_a_worker_with_news_is_asked_again_for_everything() -> None:
    heap = DeadlineHeap()
    refusal_cache = RefusalCache(heap)
    for profile in (SMALL, LARGE):
        refusal_cache.refused(profile, ANN, "full", 0.0)

    refusal_cache.ask_again(ANN)

    assert refusal_cache.of(SMALL) == refusal_cache.of(LARGE) == {}
    assert heap.next() is None
    assert not refusal_cache.due(REFUSED_S)
