"""Folders as a hostile task leaves them are removed, and nothing else is."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.drivers.orders import order

from shoal.drivers import workdirs
from shoal.drivers.removal import FOLDERS_AT_ONCE, remove_folder
from shoal.drivers.workdirs import Workdirs

DEEP = 5_000
NOBODY = 65_534


def nest(top: Path, depth: int, *, mode: int = 0o755) -> None:
    """Make folders inside each other, deeper than any path; shut them with `mode`."""
    fds = [os.open(top, os.O_RDONLY)]
    for _ in range(depth):
        os.mkdir("d", dir_fd=fds[-1])
        inner = os.open("d", os.O_RDONLY, dir_fd=fds[-1])
        (fd,) = fds
        if mode != 0o755:
            os.fchmod(fd, mode)
        os.close(fd)
        fds = [inner]
    fd = os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fds[0])
    os.close(fd)
    os.close(fds[0])


def test_folders_nested_5000_deep_are_removed(tmp_path: Path) -> None:
    dirs = Workdirs(tmp_path)
    attempt = order("a").attempt
    nest(dirs.make(attempt), DEEP)

    dirs.remove([attempt])

    assert list(tmp_path.iterdir()) == []


def as_somebody(act: Callable[[], bool]) -> bool:
    """Do something as a user whom modes of files bind; root is bound by none."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            os._exit(0 if act() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o300])
def test_folders_that_are_shut_are_removed(mode: int) -> None:
    home = Path(tempfile.mkdtemp(prefix="shoal-removal-"))
    home.chmod(0o777)
    top = home / "top"

    def act() -> bool:
        top.mkdir()
        nest(top, 3, mode=mode)
        return remove_folder(top) == "nothing"

    try:
        assert as_somebody(act)
        assert not top.exists()
    finally:
        shutil.rmtree(home)


def test_many_folders_beside_each_other_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for n in range(3 * FOLDERS_AT_ONCE):
        (top / f"{n}" / "a" / "b").mkdir(parents=True)
        (top / f"{n}" / "file").touch()

    assert remove_folder(top) == "nothing"
    assert not top.exists()


def test_much_is_removed_step_by_step(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for n in range(10):
        (top / f"{n}" / "deep").mkdir(parents=True)
        (top / f"{n}" / "deep" / "file").touch()
    nest(top, 40)

    steps = [remove_folder(top, most=7) for _ in range(11)]

    assert steps == ["more"] * 10 + ["nothing"]
    assert not top.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder" / "data").touch()
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "out").symlink_to(outside)
    (top / "up").symlink_to("..")
    (top / "gone").symlink_to("nowhere")
    (tmp_path / "link").symlink_to(outside)

    assert remove_folder(top) == "nothing"
    assert remove_folder(tmp_path / "link") == "stuck"
    assert (outside / "folder" / "data").exists()


def test_what_cannot_be_removed_is_left_and_the_rest_goes(tmp_path: Path) -> None:
    assert remove_folder(tmp_path / "never") == "nothing"
    (tmp_path / "file").touch()

    assert remove_folder(tmp_path / "file") == "stuck"
    assert (tmp_path / "file").exists()


def test_folders_of_earlier_lives_go_but_for_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workdirs, "OLD_KEPT_MAX", 2)
    (tmp_path / "sockets").mkdir()
    dirs = Workdirs(tmp_path)
    attempts = [order("a").attempt for _ in range(5)]
    for at, attempt in enumerate(attempts):
        work, kept = dirs.make(attempt), dirs.kept(attempt, "stdout")
        kept.touch()
        for path in (work, kept):
            os.utime(path, (at, at))

    dirs.trim()

    assert [dirs.work(each).exists() for each in attempts] == [False] * 3 + [True] * 2
    assert [dirs.kept(each, "stdout").exists() for each in attempts] == (
        [False] * 3 + [True] * 2
    )
    assert (tmp_path / "sockets").exists()
