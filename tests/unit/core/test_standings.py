"""How owners gain and lose the trust of a scheduler."""

from typing import Literal

from shoal.core.durability.journal import Judged
from shoal.core.verification.standings import (
    FAILURES_MAX,
    SHUNNED,
    STANDINGS_MAX,
    TRUSTED_AFTER,
    Standings,
    Tally,
)
from shoal.model.ids import NodeId, OwnerId, TaskId

ANN = OwnerId("ann")
WALL_S = 1_700_000_000.0


def judged(
    standings: Standings,
    verdict: Literal["agreed", "disagreed", "failed", "believed"],
    times: int = 1,
    *,
    owner: OwnerId = ANN,
    worker: str = "w1",
    wall_s: float = WALL_S,
) -> None:
    for _ in range(times):
        task = TaskId("j.g.0")
        standings.take(Judged(task, owner, NodeId(worker), verdict, wall_s))


def test_trust_is_earned_by_results_in_a_row() -> None:
    standings = Standings()

    assert standings.trust(ANN, WALL_S) == "unknown"
    judged(standings, "agreed", TRUSTED_AFTER - 1)
    assert standings.trust(ANN, WALL_S) == "unknown"
    judged(standings, "agreed", worker="w2")
    assert standings.trust(ANN, WALL_S) == "trusted"


def test_one_wrong_result_ends_the_trust_and_each_further_one_longer() -> None:
    standings = Standings()
    judged(standings, "agreed", TRUSTED_AFTER)

    judged(standings, "disagreed")

    assert standings.shunned(WALL_S) == [ANN]
    assert standings.trust(ANN, WALL_S + SHUNNED.first_s - 1) == "shunned"
    assert standings.trust(ANN, WALL_S + SHUNNED.first_s + 1) == "unknown"
    judged(standings, "disagreed", wall_s=WALL_S + SHUNNED.first_s)
    assert standings.trust(ANN, WALL_S + 3 * SHUNNED.first_s - 1) == "shunned"
    assert standings.shunned(WALL_S + 3 * SHUNNED.first_s + 1) == []


def test_whoever_earns_trust_again_has_one_offence_less() -> None:
    standings = Standings()
    judged(standings, "disagreed", 2)

    judged(standings, "agreed", TRUSTED_AFTER)

    standing = standings.get(ANN)
    assert standing is not None
    assert standing.offences == 1


def test_failures_alone_end_the_trust_and_many_in_a_row_are_an_offence() -> None:
    standings = Standings()
    judged(standings, "agreed", TRUSTED_AFTER)

    judged(standings, "failed", FAILURES_MAX - 1)
    assert standings.trust(ANN, WALL_S) == "unknown"
    judged(standings, "agreed")
    judged(standings, "failed", FAILURES_MAX)
    assert standings.trust(ANN, WALL_S) == "shunned"


def test_machines_are_counted_one_by_one() -> None:
    standings = Standings()
    judged(standings, "agreed", 3)
    judged(standings, "disagreed", 2)
    judged(standings, "agreed", worker="w2")

    assert standings.tally(NodeId("w1")) == (ANN, Tally(5, 2))
    assert standings.tally(NodeId("w2")) == (ANN, Tally(1, 0))
    assert standings.tally(NodeId("w3")) is None


def test_what_is_kept_gives_the_same_standings_back() -> None:
    standings, again = Standings(), Standings()
    judged(standings, "agreed", TRUSTED_AFTER)
    judged(standings, "believed", 2)
    judged(standings, "disagreed", owner=OwnerId("bob"), worker="w9")
    judged(standings, "failed", owner=OwnerId("cem"), worker="w8")

    for entry in standings.kept():
        again.take(entry)

    assert again.kept() == standings.kept()
    assert again.shunned(WALL_S) == standings.shunned(WALL_S) == ["bob"]
    assert again.tally(NodeId("w9")) == ("bob", Tally(1, 1))


def test_those_without_offence_are_forgotten_first() -> None:
    standings = Standings()
    judged(standings, "disagreed")

    for number in range(STANDINGS_MAX):
        owner = OwnerId(f"o{number}")
        judged(standings, "agreed", owner=owner, worker=f"x{number}")

    assert len(standings.kept()) == STANDINGS_MAX
    assert standings.trust(ANN, WALL_S) == "shunned"
    assert standings.tally(NodeId("x0")) is None
