"""The root key is locked, kept elsewhere, and still renews its node."""

import io
import json
import sys
from pathlib import Path

import pytest

from shoal.cli import main
from shoal.core.admission.invitation_book import InvitationTerms
from shoal.core.durability.audit_chain import read
from shoal.core.membership.members import Members
from shoal.core.membership.roster import Roster
from shoal.model.ids import OwnerId
from shoal.net.identity.identity import Identity, verify
from shoal.net.identity.locked_key import is_locked
from shoal.runtime.durability.audit_log import lines
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.grant_signing import GrantSigner

WORDS = "correct horse battery\n"


class Shell:
    def __init__(
        self,
        home: Home,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.home = home
        self._patch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str, typed: str = WORDS, code: int = 0) -> str:
        self._patch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as end:
            main(list(words))
        seen = self._capsys.readouterr()
        assert (end.value.code or 0) == code, seen
        return seen.out + seen.err


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return Shell(Home(tmp_path / "home"), monkeypatch, capsys)


def admits(shell: Shell) -> bool:
    """Whether the node of this home can let others in, who are then members."""
    known = shoal_membership.load(shell.home)
    assert known is not None
    members = Members(known.shoal, known.root, verify)
    identity = Identity.load(shell.home.key)
    granting = GrantSigner(shell.home, identity, known, Roster(members, 1.8e9))
    newcomer = Identity.generate().node
    terms = InvitationTerms(roles=("worker",), owner=OwnerId(""))
    grant = granting.grant(newcomer, terms)
    found = members.admit(newcomer, grant, grant.expires_wall_s - 1.0)
    return not isinstance(found, str)


def test_a_node_invites_while_its_root_key_is_locked(shell: Shell) -> None:
    shell("init", "reef", "--lock")

    assert is_locked(shell.home.root_key.read_bytes())
    assert admits(shell)


def test_a_node_invites_while_its_root_key_is_elsewhere(
    shell: Shell, tmp_path: Path
) -> None:
    stick = tmp_path / "stick" / "reef.key"

    shell("init", "reef", "--root-key", str(stick))

    assert not shell.home.root_key.exists()
    assert stick.stat().st_mode & 0o777 == 0o600
    assert admits(shell)


def test_a_key_is_locked_and_opened_later(shell: Shell) -> None:
    shell("init", "reef")
    before = Identity.load(shell.home.root_key).node

    shell("key", "lock")
    shell("key", "lock", code=2)
    shell("key", "unlock", typed="wrong words, sorry\n", code=106)
    is_shut = is_locked(shell.home.root_key.read_bytes())
    shell("key", "unlock")

    assert is_shut
    assert Identity.load(shell.home.root_key).node == before
    noted = [read(line) for line in lines(shell.home)]
    assert [each.because for each in noted if each is not None] == [
        "root key locked",
        "root key unlocked",
    ]


@pytest.mark.parametrize("how", ["--lock", "--root-key"])
def test_the_root_key_renews_the_grant_of_its_node(
    shell: Shell, tmp_path: Path, how: str
) -> None:
    stick = str(tmp_path / "stick.key")
    where = [how, stick] if how == "--root-key" else [how]
    shell("init", "reef", *where)
    old = shoal_membership.load(shell.home)
    assert old is not None

    said = shell("renew", "--json", *(where if how == "--root-key" else []))

    new = shoal_membership.load(shell.home)
    assert new is not None
    assert new.grant.expires_wall_s > old.grant.expires_wall_s
    assert new.grant.roles == old.grant.roles
    assert json.loads(said.splitlines()[-1])["node"] == new.grant.node


def test_another_key_renews_nothing(shell: Shell, tmp_path: Path) -> None:
    shell("init", "reef")
    Identity.load_or_create(tmp_path / "other.key")

    said = shell("renew", "--root-key", str(tmp_path / "other.key"), code=2)

    assert "not the root key" in said
