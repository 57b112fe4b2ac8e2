"""The journal in real processes, which are killed, and on disks that fail."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.integration.store_child import numbers

from shoal.errors import StoreError
from shoal.store.journal import Journal

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
ENDLESS = 10**9
ROUNDS = 10
SOAK_SEEDS = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12)]
SYNCED = re.compile(r"fdatasync\(.*\) += 0|<\.\.\. fdatasync resumed")


def can_trace() -> bool:
    """Return whether strace is there and allowed to look."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    tried = subprocess.run([strace, "true"], capture_output=True, check=False)
    return tried.returncode == 0


needs_strace = pytest.mark.skipif(not can_trace(), reason="no strace to look with")


def command(
    path: Path, *, window: int, count: int = ENDLESS, compact_every: int = 0
) -> list[str]:
    program = [sys.executable, "-m", "tests.integration.store_child"]
    return [*program, str(path), str(window), str(count), str(compact_every)]


def stored(path: Path) -> list[int]:
    """Return the numbers that a journal holds."""
    with closing(Journal.open(path)) as journal:
        return [n for n in numbers(list(journal.rows())) if n]


def said(output: str, word: str) -> list[int]:
    """Return the numbers after a word at the beginning of lines that are complete."""
    return [int(n) for n in re.findall(rf"^{word} (\d+)\n", output, re.MULTILINE)]


@contextmanager
def child(*args: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def killed(
    path: Path, delay_s: float, *, compact_every: int, after: str = "open"
) -> str:
    """Let a process append for a moment after it said so; return all it said."""
    with child(*command(path, window=16, compact_every=compact_every)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        while not first.splitlines()[-1].startswith(after):
            first += process.stdout.readline()
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.kill()
        return first + process.stdout.read()


@pytest.mark.parametrize("seed", [1, *SOAK_SEEDS])
@pytest.mark.parametrize("compact_every", [0, 40], ids=["appending", "compacting"])
def test_kill_9_loses_nothing_that_was_acknowledged(
    tmp_path: Path, compact_every: int, seed: int
) -> None:
    """I1: whatever was acknowledged is there, in order, nothing twice."""
    path, rng = tmp_path / "journal.db", Random(seed)
    acknowledged = 0
    rounds = 0
    while rounds < ROUNDS or is_compacted(path) != (compact_every > 0):
        assert rounds < 20 * ROUNDS, "it never got as far as a snapshot"
        rounds += 1
        delay_s, after = rng.uniform(0.0, 0.1), rng.choice(("open", "synced"))
        output = killed(path, delay_s, compact_every=compact_every, after=after)

        [opened] = said(output, "open")
        acknowledged = max([opened, *said(output, "synced")])
        found = stored(path)
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= acknowledged

    assert acknowledged > ROUNDS


def is_compacted(path: Path) -> bool:
    with closing(Journal.open(path)) as journal:
        return any(row.kind == "upto" for row in journal.rows())


def test_a_journal_is_free_as_soon_as_its_process_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with child(*command(path, window=1)) as process:
        assert process.stdout is not None
        process.stdout.readline()

        with pytest.raises(StoreError, match=f"process {process.pid} has it open"):
            Journal.open(path)

        process.kill()
        process.wait()
        Journal.open(path).close()


# What reaches the disk, as the kernel sees it.


def traced(path: Path, *options: str, window: int, count: int) -> tuple[str, list[str]]:
    """Run a process under strace; return what it said, and its calls in order."""
    log = path.with_name("trace")
    strace = ["strace", "-f", "-y", "-o", str(log), *options]
    done = subprocess.run(
        [*strace, *command(path, window=window, count=count)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout, log.read_text(encoding="utf-8", errors="replace").splitlines()


@needs_strace
def test_nothing_is_acknowledged_before_the_disk_has_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    output, calls = traced(path, "-e", "trace=write,fdatasync", window=1, count=20)

    assert said(output, "synced") == list(range(1, 21))
    syncs: list[int] = []  # how many there were since the last acknowledgement
    count = 0
    for call in calls:
        count += bool(SYNCED.search(call))
        if re.search(r'write\(1<.*"synced ', call):
            syncs.append(count)
            count = 0
    assert len(syncs) == 20
    assert min(syncs) >= 1


@needs_strace
def test_what_a_killed_process_left_is_on_disk_before_it_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    killed(path, 0.05, compact_every=0, after="synced")
    assert path.with_name("journal.db-wal").stat().st_size > 0

    output, calls = traced(path, "-e", "trace=write,fdatasync", window=1, count=0)

    assert said(output, "open")
    opened = next(n for n, call in enumerate(calls) if '"open ' in call)
    synced = [call for call in calls[:opened] if SYNCED.search(call)]
    assert any("journal.db>" in call for call in synced)


@needs_strace
def test_many_entries_share_one_sync(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    output, calls = traced(path, "-e", "trace=fdatasync", window=64, count=64 * 20)

    assert said(output, "synced")[-1] == 64 * 20
    syncs = [call for call in calls if SYNCED.search(call)]
    assert 20 <= len(syncs) < 64 * 20 / 8


@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("nth", [1, 2, 4, 6, 9])
def test_a_sync_that_fails_stops_all_acknowledgements(
    tmp_path: Path, error: str, nth: int
) -> None:
    path = tmp_path / "journal.db"
    fault = f"inject=fdatasync:error={error}:when={nth}+"

    output, _ = traced(
        path, "-e", "trace=fdatasync", "-e", fault, window=1, count=ENDLESS
    )

    assert output.splitlines()[-1].startswith("disk ")
    acknowledged = max(said(output, "synced"), default=0)
    found = stored(path)
    assert found == list(range(1, len(found) + 1))
    assert acknowledged <= len(found) <= acknowledged + 1


@needs_strace
def test_a_write_that_fails_stops_all_acknowledgements(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    fault = "inject=pwrite64:error=EIO:when=40+"

    output, _ = traced(path, "-e", "trace=pwrite64", "-e", fault, window=4, count=10**4)

    assert output.splitlines()[-1].startswith("disk ")
    acknowledged = max(said(output, "synced"))
    found = stored(path)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged


# A disk that is full.


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a disk of one MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine mounts no small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_the_node_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        path, ballast = disk / "journal.db", disk / "ballast"
        ballast.write_bytes(bytes(256 << 10))
        done = subprocess.run(
            command(path, window=8),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

        assert done.returncode == 3
        assert done.stdout.splitlines()[-1].startswith("disk ")
        acknowledged = max(said(done.stdout, "synced"))
        ballast.unlink()
        found = stored(path)
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= acknowledged > 100
