"""What a worker tells of itself, and when."""

from itertools import pairwise

from tests.fake_keys import ROOT, SHOAL, verify

from shoal.core.deadlines import DeadlineHeap
from shoal.core.events import AddressesChanged, CacheChanged, Effect, Send
from shoal.core.leasing.lending_terms import LendingTerms
from shoal.core.leasing.load_publisher import LoadPublisher
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.membership.members import Members
from shoal.core.membership.roster import Roster
from shoal.core.timing import INVENTORY_DELAY_S, VIEW_TTL_S
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Ledger
from shoal.protocol.messages import Inventory, InventoryChanged, Load

ME, ANN = NodeId("me"), NodeId("ann")
LOAD = Load(cpu_milli=1_000)
VERSION = (1, 1, False)


def telling() -> LoadPublisher:
    terms = LendingTerms(OwnerRules(), Roster(Members(SHOAL, ROOT, verify), 0.0))
    return LoadPublisher(
        ME, 1, Ledger(Capacity(cpu_milli=1_000)), terms, DeadlineHeap()
    )


def sent(effects: list[Effect]) -> list[tuple[NodeId, type, tuple[str, ...]]]:
    return [
        (effect.peer, type(effect.message), getattr(effect.message, "warm", ()))
        for effect in effects
        if isinstance(effect, Send)
    ]


def test_others_hear_of_a_changed_cache_soon_and_of_load_alone_after_that() -> None:
    one = telling()
    one.show(ANN, LOAD, 0.0)

    assert one.learn(CacheChanged(("a", "b")), LOAD, 0.0) == []
    one.note(VERSION, 0.0)
    assert sent(one.due(lambda: LOAD, VERSION, INVENTORY_DELAY_S)) == [
        (ANN, Inventory, ("a", "b"))
    ]
    one.note((2, 1, False), 1.0)
    later = one.due(lambda: LOAD, (2, 1, False), 1.0 + INVENTORY_DELAY_S)
    assert sent(later) == [(ANN, InventoryChanged, ())]


def test_this_node_hears_of_a_changed_cache_at_once() -> None:
    one = telling()
    one.show(ME, LOAD, 0.0)

    assert sent(one.learn(CacheChanged(("a",)), LOAD, 0.0)) == [(ME, Inventory, ("a",))]


def test_the_same_cache_in_another_order_is_no_news() -> None:
    one = telling()
    one.show(ME, LOAD, 0.0)
    one.learn(CacheChanged(("a", "b")), LOAD, 0.0)

    assert one.learn(CacheChanged(("b", "a")), LOAD, 0.0) == []


def test_whoever_asks_is_shown_the_cache_and_the_addresses() -> None:
    one = telling()
    one.learn(CacheChanged(("a",)), LOAD, 0.0)
    one.learn(AddressesChanged(("/ip4/1.2.3.4/tcp/5",)), LOAD, 0.0)

    [effect] = one.show(ANN, LOAD, 0.0)

    assert isinstance(effect, Send)
    assert isinstance(effect.message, Inventory)
    assert effect.message.warm == ("a",)
    assert effect.message.addresses == ("/ip4/1.2.3.4/tcp/5",)


def test_what_has_not_changed_is_told_ever_more_rarely_and_before_views_expire() -> (
    None
):
    one = telling()
    one.show(ANN, LOAD, 0.0)
    told: list[float] = []
    version = VERSION
    for tenth in range(2_000):
        now = tenth / 10
        version = VERSION if now < 150 else (2, 1, False)
        if version != one.planned:
            one.note(version, now)
        if sent(one.due(lambda: LOAD, version, now)):
            told.append(now)

    pauses = [round(b - a) for a, b in pairwise(told)]
    assert pauses[:6] == [8, 16, 24, 24, 24, 24]
    assert 8 in pauses[6:], "a change is repeated soon again"
    assert 3 * max(pauses) < VIEW_TTL_S, "three may be lost"
