"""A machine that waits to be let in tells how long it has waited."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.net.test_invitations import TOKEN

from shoal.errors import UnreachableError
from shoal.runtime.admission import join_by_invitation
from shoal.runtime.home import Home


def test_who_waits_to_be_let_in_tells_at_each_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise UnreachableError("nobody", because="connection refused")

    monkeypatch.setattr(join_by_invitation, "join", refused)
    monkeypatch.setattr(join_by_invitation, "AGAIN_S", 0.01)
    told: list[tuple[str, float]] = []

    with pytest.raises(UnreachableError):
        asyncio.run(
            join_by_invitation.join_shoal(
                Home(tmp_path),
                TOKEN,
                wait_s=0.2,
                waits=lambda why, waited_s: told.append((why, waited_s)),
            )
        )

    assert {why for why, _ in told} == {"connection refused"}
    assert len(told) > 1
    assert all(before < after < 0.2 for (_, before), (_, after) in pairwise(told))
