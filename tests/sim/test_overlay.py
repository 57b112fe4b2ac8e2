"""What workers say of load reaches all members, by whatever overlay they choose."""

import pytest
from tests.sim.planted_overlay import OVERLAY_BUGS, OVERLAY_FOUND_BY

from shoal.sim.discovery.overlay_trial import OverlayTrial

SEEDS = 8


def test_overlays_keep_their_promises() -> None:
    for seed in range(SEEDS):
        trial = OverlayTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"


@pytest.mark.soak
def test_overlays_keep_their_promises_for_long() -> None:
    for seed in range(SEEDS, 2_000):
        trial = OverlayTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"


@pytest.mark.parametrize("bug", OVERLAY_BUGS, ids=lambda bug: bug[0])
def test_a_planted_bug_of_the_overlay_is_found(
    bug: tuple[str, type, str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, owner, method, replacement = bug
    promise, seed = OVERLAY_FOUND_BY[name]
    assert OverlayTrial(seed).run() == (), "it breaks no promise without the bug"

    monkeypatch.setattr(owner, method, replacement)
    found = OverlayTrial(seed).run()

    assert [each.id for each in found] == [promise]
