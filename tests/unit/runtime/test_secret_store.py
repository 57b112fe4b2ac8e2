from pathlib import Path

import pytest

from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.net.identity.identity import Identity
from shoal.runtime.artifacts.secret_store import SecretStore

OTTER = Identity.generate()


def test_a_secret_is_kept_and_the_file_does_not_show_it(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    store = SecretStore(path, OTTER)

    assert store.set("HF_TOKEN", "hunter2") is False
    assert store.set("HF_TOKEN", "hunter3") is True
    store.set("OTHER", "x")

    again = SecretStore(path, OTTER)
    assert again.get("HF_TOKEN") == "hunter3"
    assert again.names() == ["HF_TOKEN", "OTHER"]
    assert again.get("NONE") is None
    assert b"hunter" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0


def test_a_secret_that_is_removed_is_gone(tmp_path: Path) -> None:
    store = SecretStore(tmp_path / "s", OTTER)
    store.set("A", "x")

    store.remove("A")

    assert store.names() == []
    with pytest.raises(NotFoundError, match="no secret 'A'"):
        store.remove("A")


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "Ä", "x" * 200])
def test_a_name_that_is_no_variable_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a secret"):
        SecretStore(tmp_path / "s", OTTER).set(name, "x")


@pytest.mark.parametrize("value", ["", "a\0b", "x" * 70_000])
def test_a_value_that_is_no_variable_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match="cannot be a secret"):
        SecretStore(tmp_path / "s", OTTER).set("A", value)


def test_another_key_opens_nothing_and_says_so(tmp_path: Path) -> None:
    SecretStore(tmp_path / "s", OTTER).set("A", "x")

    with pytest.raises(ShoalError, match="cannot be opened"):
        SecretStore(tmp_path / "s", Identity.generate()).get("A")


def test_a_file_that_is_damaged_is_an_error_and_not_an_empty_store(
    tmp_path: Path,
) -> None:
    (tmp_path / "s").write_text("{")

    with pytest.raises(ShoalError, match="cannot be read"):
        SecretStore(tmp_path / "s", OTTER).set("A", "x")
