"""Nobody gives more than it has, and who may not sign is told why."""

import time
from pathlib import Path

import msgspec
import pytest
from tests.runtime.desks import ADMIN, MEMBER, Reef, run, stranger

from shoal.core.admission.invitation_book import InvitationTerms
from shoal.core.membership.members import Admission, Members
from shoal.errors import NotAllowedError, ShoalError
from shoal.model.ids import OwnerId
from shoal.net.identity.identity import verify
from shoal.runtime.membership import grant_signing
from shoal.runtime.membership import revocation as revoking
from shoal.runtime.membership.grant_signing import ROLES


def test_an_admin_gives_no_more_than_its_own_grant_holds(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        few = msgspec.structs.replace(ADMIN, quota_gpus=2, top_priority=1)
        await reef.join("admin", reef.found("root"), few)
        ann = stranger("ann", tmp_path)
        much = InvitationTerms(
            roles=ROLES["worker"],
            owner=OwnerId("ann"),
            quota_gpus=8,
            top_priority=5,
        )

        grant = reef.node("admin").granting.grant(ann, much)

        members = Members("reef", reef.of["root"].root, verify)
        found = members.admit(ann, grant, time.time())
        assert isinstance(found, Admission)
        assert (found.quota_gpus, found.top_priority) == (2, 1)
        assert grant.expires_wall_s <= reef.of["admin"].grant.expires_wall_s

    run(story())


def test_a_member_that_is_no_admin_signs_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        await reef.join("member", reef.found("root"), MEMBER)
        ann = stranger("ann", tmp_path)

        assert not reef.node("member").granting.is_allowed
        with pytest.raises(NotAllowedError, match="neither invite nor revoke"):
            reef.node("member").granting.grant(ann, MEMBER)
        with pytest.raises(NotAllowedError) as refused:
            reef.node("member").granting.revocation(ann)
        assert "scheduler, worker, gate" in refused.value.because

    run(story())


class Clock:
    """The wall clock of a machine that may be wrong."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def time(self) -> float:
        """Return what it reads."""
        return time.time() + self._ahead_s


AHEAD_S = 5 * 365 * 86_400.0


def test_a_grant_from_a_clock_that_was_ahead_can_be_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        root = reef.found("root")
        await reef.join("admin", root, ADMIN)
        ann = stranger("ann", tmp_path)
        monkeypatch.setattr(grant_signing, "time", Clock(AHEAD_S))
        early = reef.node("admin").granting.grant(ann, MEMBER)
        monkeypatch.setattr(grant_signing, "time", Clock(0.0))
        roster = reef.node("root").roster  # It has never seen that grant.

        revocation = reef.node("root").granting.revocation(ann)

        assert roster.revoke(revocation)
        assert roster.meet(ann, early, 0.0) == (
            f"{ann} is revoked up to serial {revocation.serial}"
        )
        revoking.check(roster, revocation, 0.0)

    run(story())


@pytest.mark.parametrize("ahead_s", [-AHEAD_S, 0.0, AHEAD_S])
def test_who_was_revoked_can_be_let_in_again_and_revoked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        reef.found("root")
        ann, roster = stranger("ann", tmp_path), reef.node("root").roster
        monkeypatch.setattr(grant_signing, "time", Clock(ahead_s))
        long_s = msgspec.structs.replace(MEMBER, valid_for_s=9 * 365 * 86_400.0)
        first = reef.node("root").granting.grant(ann, long_s)
        assert isinstance(roster.meet(ann, first, 0.0), Admission)

        for _ in range(3):
            assert roster.revoke(reef.node("root").granting.revocation(ann))
            assert roster.get(ann, 0.0) is None
            again = reef.node("root").granting.grant(ann, long_s)
            assert isinstance(roster.meet(ann, again, 0.0), Admission)
            assert isinstance(roster.verify(ann, first, 0.0), str)

    run(story())


def test_a_revocation_that_was_not_taken_is_no_success(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        root = reef.found("root")
        await reef.join("admin", root, ADMIN)
        ann, roster = stranger("ann", tmp_path), reef.node("root").roster
        assert roster.revoke(
            reef.node("root").granting.revocation(reef.of["admin"].grant.node)
        )

        revocation = reef.node("admin").granting.revocation(ann)

        assert not roster.revoke(revocation)
        with pytest.raises(ShoalError, match="is not revoked"):
            revoking.check(roster, revocation, 0.0)

    run(story())
