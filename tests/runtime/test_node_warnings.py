"""A node warns of an open root key, and of a grant that ends."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shoal.net.identity.identity import Identity
from shoal.net.identity.locked_key import lock
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership
from shoal.runtime.monitoring.node_warnings import ROOT_KEY, cautions

NEAR = ("/ip4/127.0.0.1/tcp/4001",)
FAR = ("/ip4/10.0.0.7/tcp/4001",)


def node(path: Path, roles: tuple[str, ...] = ("worker",)) -> Any:  # noqa: ANN401
    """Return what a warning looks at, of a node that made its shoal."""
    home = Home(path)
    home.prepare()
    belongs = shoal_membership.found(home, Identity.load_or_create(home.key), "reef")
    return SimpleNamespace(
        home=home,
        membership=belongs,
        settings=SimpleNamespace(roles=roles),
        audit=SimpleNamespace(trouble=""),
        granting=SimpleNamespace(trouble=""),
        peer=SimpleNamespace(
            membership=SimpleNamespace(renewal=SimpleNamespace(trouble=""))
        ),
    )


def test_an_open_root_key_is_warned_of_where_others_run_tasks(tmp_path: Path) -> None:
    lender = node(tmp_path / "lender")
    other = node(tmp_path / "other", roles=("scheduler",))

    assert cautions(lender, FAR) == [ROOT_KEY]
    assert cautions(lender, NEAR) == []
    assert cautions(other, FAR) == []


def test_a_locked_or_absent_root_key_is_not_warned_of(tmp_path: Path) -> None:
    locked, absent = node(tmp_path / "locked"), node(tmp_path / "absent")
    path = locked.home.root_key
    path.write_bytes(lock(path.read_bytes(), "correct horse battery"))
    absent.home.root_key.unlink()

    assert cautions(locked, FAR) == []
    assert cautions(absent, FAR) == []


@pytest.mark.parametrize(("days", "is_said"), [(29, True), (31, False), (-1, True)])
def test_a_grant_that_ends_and_was_not_renewed_is_warned_of(
    tmp_path: Path, days: int, is_said: bool
) -> None:
    member = node(tmp_path)
    ends = time.time() + days * 86_400.0
    grant = msgspec.structs.replace(member.membership.grant, expires_wall_s=ends)
    member.membership = msgspec.structs.replace(member.membership, grant=grant)

    calm = cautions(member, NEAR)
    member.peer.membership.renewal.trouble = "no admin is linked"
    said = cautions(member, NEAR)

    assert calm == []
    assert bool(said) == is_said
    assert all("could not be renewed: no admin is linked" in each for each in said)
