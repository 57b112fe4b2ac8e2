"""Nodes are killed while 64 MiB travel between them, and the job is done anyway."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

from shoal.failpoints import VARIABLE
from shoal.protocol.limits import PIECE_BYTES_MAX

pytestmark = pytest.mark.integration

SIZE = 64 << 20
WITHIN_S = 60.0
HALF_SERVED = f"blob.served:{SIZE // PIECE_BYTES_MAX // 2}:kill"
HALF_FETCHED = "blob.written:3:kill"
"""No more than 256 pieces are under way at a time: three times that is about half."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], CliHome]]:
    with homes(tmp_path) as make:
        yield make


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "big").write_bytes(os.urandom(SIZE))
    return folder


def shoal_of_two(
    make: Callable[[str], CliHome], *, boss_dies: str = "", worker_dies: str = ""
) -> tuple[CliHome, CliHome]:
    boss, worker = make("boss"), make("worker")
    boss.ok("init", "reef")
    start(boss, boss_dies)
    invitation = boss.ok("invite", "-q").strip()
    worker.ok("join", invitation, "--no-up")
    with dying(worker, worker_dies):
        worker.up("--listen", "127.0.0.1:0")
    return boss, worker


def start(boss: CliHome, dies: str = "") -> None:
    with dying(boss, dies):
        boss.up("--no-worker")


@contextmanager
def dying(home: CliHome, failpoint: str) -> Iterator[None]:
    """Have a node that is started now die at a failpoint, if one is named."""
    home.env[VARIABLE] = failpoint
    try:
        yield
    finally:
        del home.env[VARIABLE]


def wait_for_death(home: CliHome) -> None:
    home.wait_for_end(home.info["pid"])


def submit(boss: CliHome, work: Path) -> str:
    # Not the same bytes: those would not travel back.
    command = f"sha256sum < big; mkdir out; (echo; head -c {SIZE - 1} big) > out/copy"
    flags = ("--workdir", str(work), "--output", "out/", "--retries", "5")
    return boss.ok("submit", "-q", *flags, "--", "sh", "-c", command).strip()


def done(boss: CliHome, job: str, work: Path, to: Path) -> None:
    waited = boss("wait", job, "--timeout", f"{WITHIN_S:.0f}s")
    assert waited.code == 0, (waited, boss("show", job))
    digest = hashlib.sha256((work / "big").read_bytes()).hexdigest()
    assert boss.ok("logs", job).split()[0] == digest
    boss.ok("pull", job, "--to", str(to))
    assert (to / "copy").read_bytes() == b"\n" + (work / "big").read_bytes()[:-1]


def test_a_worker_that_is_killed_while_it_fetches_goes_on_where_it_was(
    make: Callable[[str], CliHome], work: Path, tmp_path: Path
) -> None:
    boss, worker = shoal_of_two(make, worker_dies=HALF_FETCHED)
    job = submit(boss, work)

    wait_for_death(worker)
    cache = worker.path / "cache"
    [part] = (cache / "new").iterdir()
    before = part.stat()
    with part.open("rb"):  # While it is open, its number is not given to another.
        worker.up()
        done(boss, job, work, tmp_path / "out")
        after = (cache / part.name[:2] / part.name).stat()

    assert before.st_size == SIZE
    assert 0 < before.st_blocks * 512 < SIZE
    assert after.st_ino == before.st_ino, "it was begun anew"
    assert list((cache / "new").iterdir()) == []


def test_a_scheduler_that_is_killed_while_it_serves_or_fetches_loses_nothing(
    make: Callable[[str], CliHome], work: Path, tmp_path: Path
) -> None:
    boss, _ = shoal_of_two(make, boss_dies=HALF_SERVED)
    job = submit(boss, work)

    wait_for_death(boss)
    start(boss, HALF_FETCHED)
    wait_for_death(boss)
    start(boss)

    done(boss, job, work, tmp_path / "out")
