"""The rack asks a machine for its deadline only after it has told it something."""

import pytest

from shoal.core.peer import Peer
from shoal.sim.seeds import run_seed


@pytest.mark.parametrize("seed", [3, 17, 40, 63])
def test_no_machine_changes_its_deadline_unless_it_is_told_something(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Peer.next_deadline
    asked = 0

    def compared(peer: Peer) -> float | None:
        nonlocal asked
        asked += 1
        due = kept(peer)
        # All machines again, also those that were told nothing.
        each = [m.next_deadline() for m in peer._machines]
        assert due == min((at for at in each if at is not None), default=None)
        return due

    monkeypatch.setattr(Peer, "next_deadline", compared)

    assert run_seed(seed).violations == ()
    assert asked > 1_000
