"""A peer is told all revocations, a page at a time, the newest first."""

from shoal.core.events import Effect, Send
from shoal.core.membership.membership import PAGE, PAUSE_S, RevocationSync
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId
from shoal.protocol.messages import Revocation
from shoal.sim.node import trust

ANN = NodeId("ann")


def roster(count: int) -> Roster:
    met = Roster(trust.members(), trust.WALL_AT_START_S)
    for n in range(count):
        assert met.revoke(trust.revocation(NodeId(f"x{n}"), serial=1))
    return met


def nodes(effects: list[Effect]) -> list[str]:
    told: list[str] = []
    for effect in effects:
        assert isinstance(effect, Send)
        assert isinstance(effect.message, Revocation)
        told.append(effect.message.node)
    return told


def test_all_are_told_a_page_at_a_time_and_the_newest_first() -> None:
    telling = RevocationSync(roster(300))

    pages = [nodes(telling.connected(ANN, 1.0))]
    while (due := telling.next_deadline()) is not None:
        pages.append(nodes(telling.on_deadline(due)))

    assert [node for page in pages for node in page] == [
        f"x{n}" for n in reversed(range(300))
    ]
    assert max(len(page) for page in pages) == PAGE
    assert due is None


def test_pages_follow_each_other_with_a_pause() -> None:
    telling = RevocationSync(roster(PAGE + 1))

    telling.connected(ANN, 1.0)

    assert telling.next_deadline() == 1.0 + PAUSE_S


def test_who_is_lost_is_told_no_more() -> None:
    telling = RevocationSync(roster(300))
    telling.connected(ANN, 1.0)

    telling.lost(ANN)

    assert telling.next_deadline() is None
    assert telling.on_deadline(2.0) == []
