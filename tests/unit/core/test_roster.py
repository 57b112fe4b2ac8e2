"""Who has been met, and until when that holds."""

from __future__ import annotations

from shoal.core.membership.members import Admission
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId, OwnerId
from shoal.sim.node import trust

ANN = NodeId("ann")


def roster() -> Roster:
    return Roster(trust.members(), trust.WALL_AT_START_S)


def test_who_shows_the_same_grant_again_is_let_in_until_it_expires() -> None:
    met = roster()
    grant = trust.grant(ANN, ("worker",), OwnerId("ann"), valid_for_s=60.0)

    first = met.meet(ANN, grant, 0.0)

    assert isinstance(first, Admission)
    assert met.meet(ANN, grant, 59.0) == first
    assert met.meet(ANN, grant, 61.0) == "grant expired 1 s ago"
    assert met.get(ANN, 61.0) is None


def test_who_shows_another_grant_is_judged_by_that() -> None:
    met = roster()
    met.meet(ANN, trust.grant(ANN, ("worker",), OwnerId("ann")), 0.0)
    more = trust.grant(ANN, ("worker", "scheduler"), OwnerId("ann"), serial=2)
    forged = trust.sign_grant(more, ANN)

    assert met.meet(ANN, forged, 1.0) == "signature of root does not verify"
    known = met.get(ANN, 1.0)
    assert known is not None
    assert known.roles == ("worker",)
    assert isinstance(met.meet(ANN, more, 2.0), Admission)
    known = met.get(ANN, 2.0)
    assert known is not None
    assert known.roles == ("worker", "scheduler")


def test_who_is_revoked_is_not_let_in_with_what_was_verified_before() -> None:
    met = roster()
    grant = trust.grant(ANN, ("worker",), OwnerId("ann"))
    met.meet(ANN, grant, 0.0)

    assert met.revoke(trust.revocation(ANN, serial=1))

    assert met.meet(ANN, grant, 1.0) == "ann is revoked up to serial 1"
    assert met.get(ANN, 1.0) is None


def test_a_grant_expires_by_the_clock_as_it_was_read_last() -> None:
    met = roster()
    grant = trust.grant(ANN, ("worker",), OwnerId("ann"), valid_for_s=60.0)
    met.meet(ANN, grant, 0.0)

    met.read_wall(trust.WALL_AT_START_S + 3_600.0, 1.0)  # The machine has slept.

    assert met.get(ANN, 1.0) is None
    assert met.meet(ANN, grant, 1.0) == "grant expired 3540 s ago"


def test_a_clock_that_was_ahead_at_boot_locks_nobody_out_once_it_is_set() -> None:
    ahead = Roster(trust.members(), trust.WALL_AT_START_S + 1e9)
    grant = trust.grant(ANN, ("worker",), OwnerId("ann"), valid_for_s=60.0)
    assert isinstance(ahead.meet(ANN, grant, 0.0), str)

    ahead.read_wall(trust.WALL_AT_START_S + 10.0, 10.0)

    assert isinstance(ahead.meet(ANN, grant, 10.0), Admission)
    assert ahead.get(ANN, 61.0) is None
