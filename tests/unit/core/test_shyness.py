"""Workers that refused are left alone for a while, and asked again after news."""

from __future__ import annotations

from shoal.core.deadlines import DeadlineHeap
from shoal.core.shyness import SHY_S, Shyness
from shoal.model.ids import NodeId
from shoal.model.resources import Profile

ANN, BEN = NodeId("ann"), NodeId("ben")
SMALL, LARGE = Profile(cpu_milli=1_000), Profile(cpu_milli=8_000)


def test_a_refusal_is_of_one_profile_and_keeps_its_reason() -> None:
    shyness = Shyness(DeadlineHeap())

    shyness.refused(LARGE, ANN, "cpu 4 < 8", 0.0)

    assert shyness.of(LARGE) == {ANN: "cpu 4 < 8"}
    assert shyness.of(SMALL) == {}


def test_a_refusal_is_forgotten_after_a_while() -> None:
    heap = DeadlineHeap()
    shyness = Shyness(heap)
    shyness.refused(LARGE, ANN, "full", 0.0)
    shyness.refused(LARGE, BEN, "full", 1.0)

    assert not shyness.due(SHY_S - 0.1)
    assert shyness.due(SHY_S)
    assert shyness.of(LARGE) == {BEN: "full"}
    assert heap.next() == 1.0 + SHY_S


def test_a_worker_with_news_is_asked_again_for_everything() -> None:
    heap = DeadlineHeap()
    shyness = Shyness(heap)
    for profile in (SMALL, LARGE):
        shyness.refused(profile, ANN, "full", 0.0)

    shyness.ask_again(ANN)

    assert shyness.of(SMALL) == shyness.of(LARGE) == {}
    assert heap.next() is None
    assert not shyness.due(SHY_S)
