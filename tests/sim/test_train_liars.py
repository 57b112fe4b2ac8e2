"""One worker of four says what is not so; the run goes on in about its usual time."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.sim.test_train import rules, started
from tests.sim.train_world import World

from shoal.train.diloco.messages import COUNT_MAX, Contribution, KeptState, Status
from shoal.train.diloco.pace import FASTEST

USUAL_S = 115.0
NO_FILE = tuple(Contribution(n, "nowhere", 8, 8) for n in range(16))


def claims(**fields: object) -> Callable[[Status], Status]:
    """Return a liar that changes what it says of all its contributions."""

    def lie(said: Status) -> Status:
        each = (replace(c, **fields) for c in said.contributions)
        return replace(said, contributions=tuple(each))

    return lie


LIES: dict[str, tuple[Callable[[Status], Status], float]] = {
    "is ahead of all": (lambda s: replace(s, merged=10**6, check=7), 150.0),
    "begins again and again": (lambda s: replace(s, life=s.life + s.seq), 60.0),
    "never contributes": (
        lambda s: replace(s, listed_from=10**6, contributions=()),
        100.0,
    ),
    "names files that are not there": (
        lambda s: replace(s, contributions=NO_FILE),
        300.0,
    ),
    "did impossible steps": (claims(steps=COUNT_MAX), 30.0),
    "took no time": (claims(seconds=1e-9), 30.0),
    "took for ever": (claims(seconds=1e300, fetch_s=1e300), 60.0),
    "keeps what nobody has": (
        lambda s: replace(
            s,
            holds=KeptState(10**6, "x"),
            inner=KeptState(10**6, "x"),
            inner_is="trained",
        ),
        60.0,
    ),
}
"""What is said instead of the truth, and how many seconds more that may cost."""


@pytest.mark.parametrize("reduce", ["central", "shared"])
@pytest.mark.parametrize("lie", LIES)
def test_a_liar_neither_ends_a_run_nor_holds_it_up_for_long(
    lie: str, reduce: str
) -> None:
    told, costs_s = LIES[lie]
    world = started(World(1, rules(quorum=3, reduce=reduce, timeout_s=60.0)))
    *honest, liar = world.workers.values()
    status = liar.member.status
    liar.member.status = lambda received=None: told(status(received))  # type: ignore[method-assign]

    world.run(until_s=700.0)

    assert {closing.sync for closing in world.closings} == set(range(20))
    assert not world.failure
    assert all(worker.left for worker in honest)
    assert world.stopped_at is not None
    assert world.stopped_at < USUAL_S + costs_s
    counted = [part for closing in world.closings for part in closing.parts]
    names = {worker.name for worker in honest}
    steps = sum(p.contribution.steps for p in counted if p.worker in names)
    share = 0.9 / FASTEST if lie == "took no time" else 0.7
    assert steps > share * 20 * 50 * len(honest), "the others compute as ever"
