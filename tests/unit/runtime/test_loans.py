"""What an owner lends by name: flags, and what a task sees of it."""

from pathlib import Path

import pytest

from shoal.errors import ShoalError, UsageError
from shoal.model.job import Work
from shoal.runtime.environments.loans import (
    SHARE,
    SHARE_MODES,
    Loans,
    read_loan,
    spelled_out,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "image.net"
    found.mkdir()
    found.chmod(0o777)
    return found


def test_a_share_is_read_only_and_for_its_owner_unless_it_says_otherwise(
    folder: Path,
) -> None:
    plain, open_ = Loans([str(folder)]), Loans([f"x={folder}:rw:all"])

    [mount] = plain.mounts_of(Work(mounts=("image.net",)))
    assert (mount.place, mount.writable) == ("/data/image.net", False)
    assert mount.variable == "SHOAL_MOUNT_IMAGE_NET"
    assert (plain.lends, plain.to_all) == (("data:image.net",), ())
    assert open_.mounts_of(Work(mounts=("x",)))[0].writable
    assert open_.to_all == ("data:x",)


@pytest.mark.parametrize(
    "text", ["nowhere", "..=/tmp", ".x=/tmp", "a b=/tmp", "/job", "/"]
)
def test_a_share_that_is_no_folder_or_has_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Loans([text])


def test_a_job_names_a_name_and_never_a_path(folder: Path) -> None:
    loans = Loans([f"data={folder}"])

    for name in ("../etc", str(folder), "other", "data/.."):
        with pytest.raises(ShoalError, match="not there"):
            loans.mounts_of(Work(mounts=(name,)))


def test_two_shares_of_one_name_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="twice"):
        Loans([f"a={folder}", f"a={folder}:rw"])


def test_paths_are_spelled_out_for_a_node_that_runs_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)

    assert spelled_out(["a=image.net:rw"], "--share") == (f"a={folder}:rw",)


def test_a_folder_without_python_is_no_environment(folder: Path) -> None:
    with pytest.raises(UsageError, match="no Python environment"):
        Loans(pythons=[f"a={folder}"])


def test_a_share_can_be_seen_at_its_own_path_by_ones_own_tasks() -> None:
    loan = read_loan("srv=/srv:here", SHARE, SHARE_MODES)

    assert str(loan) == "srv=/srv:here"
    assert loan.here
    with pytest.raises(UsageError, match="cannot be shown at its own path"):
        read_loan("srv=/srv:here:all", SHARE, SHARE_MODES)
    with pytest.raises(UsageError, match="cannot be shown at its own path"):
        read_loan("tmp=/tmp:here", SHARE, SHARE_MODES)
    with pytest.raises(UsageError, match="cannot be shown at its own path"):
        read_loan("etc=/etc:here", SHARE, SHARE_MODES)
