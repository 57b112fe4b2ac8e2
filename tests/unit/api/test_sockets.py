"""The folder of a node's sockets is its own, or it is not used."""

import os
from pathlib import Path

import pytest

from shoal.api.sockets import own_folder
from shoal.errors import UsageError

SOMEBODY = 65_534


def test_a_new_folder_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "shoal-7"

    own_folder(folder)
    own_folder(folder)

    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "shoal-7").symlink_to(tmp_path / "mine")

    with pytest.raises(UsageError) as refused:
        own_folder(tmp_path / "shoal-7")

    assert refused.value.because == "it is a link or a file"


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shoal-7").touch()

    with pytest.raises(UsageError):
        own_folder(tmp_path / "shoal-7")


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shoal-7").mkdir()
    (tmp_path / "shoal-7").chmod(0o770)

    with pytest.raises(UsageError) as refused:
        own_folder(tmp_path / "shoal-7")

    assert refused.value.because == "others can enter it: its mode is 770"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shoal-7").mkdir(mode=0o700)
    os.chown(tmp_path / "shoal-7", SOMEBODY, SOMEBODY)

    with pytest.raises(UsageError) as refused:
        own_folder(tmp_path / "shoal-7")

    assert refused.value.because == f"it belongs to the user with the number {SOMEBODY}"
