"""A locked key opens by its passphrase and by nothing else."""

import os
from pathlib import Path

import pytest

from shoal.errors import KeyLockedError, NotAllowedError, ShoalError, UsageError
from shoal.net.identity.identity import Identity
from shoal.net.identity.locked_key import BEGIN, is_locked, lock, unlock

WORDS = "correct horse battery"


@pytest.fixture(scope="module")
def locked() -> bytes:
    return lock(b"the key", WORDS)


def test_a_locked_key_opens_by_its_passphrase(locked: bytes) -> None:
    assert is_locked(locked)
    assert b"the key" not in locked
    assert unlock(locked, WORDS) == b"the key"


def test_another_passphrase_opens_nothing(locked: bytes) -> None:
    with pytest.raises(NotAllowedError):
        unlock(locked, WORDS + " ")


@pytest.mark.parametrize("place", [len(BEGIN) + 4, len(BEGIN) + 20, -60])
def test_a_changed_file_opens_nothing(locked: bytes, place: int) -> None:
    changed = bytearray(locked)
    changed[place] = ord("A") if changed[place] != ord("A") else ord("B")

    with pytest.raises(ShoalError):
        unlock(bytes(changed), WORDS)


def test_a_short_passphrase_is_none() -> None:
    with pytest.raises(UsageError):
        lock(b"the key", "short")


def test_a_key_is_never_on_disk_but_locked(tmp_path: Path) -> None:
    path = tmp_path / "root.key"
    made = Identity.create_locked(path, WORDS)

    with pytest.raises(KeyLockedError):
        Identity.load(path)
    with pytest.raises(UsageError):
        Identity.create_locked(path, WORDS)

    assert Identity.load(path, WORDS).node == made.node
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in path.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_of_another_user_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    Identity.load_or_create(path)
    os.chown(path, 12_345, -1)

    with pytest.raises(ShoalError, match="belongs to user 12345"):
        Identity.load(path)
