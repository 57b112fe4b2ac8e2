"""Nodes are killed while 64 MiB travel between them, and the job is done anyway."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration

SIZE = 64 << 20
WITHIN_S = 60.0


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


def shoal_of_two(make: Callable[[str], CliHome]) -> tuple[CliHome, CliHome]:
    boss, worker = make("boss"), make("worker")
    boss.ok("init", "reef")
    boss.ok("up", "--background", "--no-worker")
    invitation = boss.ok("invite", "-q").strip()
    worker.ok("join", invitation, "--listen", "127.0.0.1:0")
    return boss, worker


def wait_for_a_part(home: CliHome, part: float) -> None:
    """Wait until some of a large blob is on a node's disk, and not all of it."""
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        for path in (home.path / "cache" / "new").glob("*"):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            if found.st_size == SIZE and found.st_blocks * 512 > part * SIZE:
                return
        time.sleep(0.002)
    raise AssertionError("nothing came")


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
    boss, worker = shoal_of_two(make)
    job = submit(boss, work)

    wait_for_a_part(worker, 0.3)
    worker.kill()
    kept = list((worker.path / "cache" / "new").iterdir())
    worker.ok("up", "--background")

    assert [path.stat().st_size for path in kept] == [SIZE]
    done(boss, job, work, tmp_path / "out")
    assert list((worker.path / "cache" / "new").iterdir()) == []


def test_a_scheduler_that_is_killed_while_it_serves_or_fetches_loses_nothing(
    make: Callable[[str], CliHome], work: Path, tmp_path: Path
) -> None:
    boss, worker = shoal_of_two(make)
    job = submit(boss, work)

    wait_for_a_part(worker, 0.3)
    boss.kill()
    boss.ok("up", "--background", "--no-worker")
    wait_for_a_part(boss, 0.3)
    boss.kill()
    boss.ok("up", "--background", "--no-worker")

    done(boss, job, work, tmp_path / "out")
