"""Nobody gives more than it has, and who may not sign is told why."""

import time
from pathlib import Path

import msgspec
import pytest
from tests.runtime.desks import ADMIN, MEMBER, Reef, run, stranger

from shoal.core.membership import Admission, Members
from shoal.errors import NotAllowedError
from shoal.model.ids import OwnerId
from shoal.net.identity import verify
from shoal.net.invitations import Terms
from shoal.runtime.granting import ROLES


def test_an_admin_gives_no_more_than_its_own_grant_holds(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        few = msgspec.structs.replace(ADMIN, quota_gpus=2, top_priority=1)
        admin = await reef.join("admin", reef.found("root"), few)
        ann = stranger("ann", tmp_path)
        much = Terms(
            roles=ROLES["worker"],
            owner=OwnerId("ann"),
            quota_gpus=8,
            top_priority=5,
        )

        grant = admin.granting.grant(ann, much)

        members = Members("reef", reef.of["root"].root, verify)
        found = members.admit(ann, grant, time.time())
        assert isinstance(found, Admission)
        assert (found.quota_gpus, found.top_priority) == (2, 1)
        assert grant.expires_wall_s <= reef.of["admin"].grant.expires_wall_s

    run(story())


def test_a_member_that_is_no_admin_signs_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        member = await reef.join("member", reef.found("root"), MEMBER)
        ann = stranger("ann", tmp_path)

        assert not member.granting.is_allowed
        with pytest.raises(NotAllowedError, match="neither invite nor revoke"):
            member.granting.grant(ann, MEMBER)
        with pytest.raises(NotAllowedError) as refused:
            member.granting.revocation(ann)
        assert "scheduler, worker, gate" in refused.value.because

    run(story())
