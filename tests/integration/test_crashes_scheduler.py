"""A scheduler that dies with 10,000 jobs, tasks that run, or half a snapshot."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.crash_plans import SURELY_RENEWED_S
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal
from tests.integration.live_work import Work, read_journal, violations
from tests.integration.long_journal import ENDED, WAITING, write_long_journal

from shoal.core.durability.journal import Finished, Submitted

pytestmark = pytest.mark.integration

TRIES = 4  # at the most, until one is quick enough
BACK_S = 5.0
"""From the start of the process until it serves, in the best of the tries.

Of its own CPU time, if that is less: it computes all the while, and may have to share.
"""

PATIENCE_S = 180.0
COMPACTED_MAX = 30_000


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a long journal, to be copied: it takes seconds to write."""
    node = LiveNode(tmp_path_factory.mktemp("aged") / "boss", (), ())
    write_long_journal(node)
    return node.home.path


@pytest.fixture
def shoal(aged: Path, tmp_path: Path) -> Iterator[LiveShoal]:
    shutil.copytree(aged, tmp_path / "boss")
    with live_shoal(LiveShoal(tmp_path)) as made:
        yield made


def restarted(node: LiveNode) -> float:
    """Kill a node and start it again; return how long it takes until it serves."""
    node.kill()
    since = time.monotonic()
    node.start()
    node.ready()
    with node.client() as client:
        assert client.info().jobs >= WAITING
    assert node.process is not None
    used = psutil.Process(node.process.pid).cpu_times()
    return min(time.monotonic() - since, used.user + used.system)


def test_a_scheduler_with_10_000_jobs_is_back_soon_and_tasks_run_on(
    shoal: LiveShoal,
) -> None:
    work = Work(shoal)
    work.order("j", {"array": 4}, seconds=600, ends=frozenset({"cancelled"}))
    eventually(lambda: len(work.pids("j")) == 4, PATIENCE_S)

    taken: list[float] = []
    was_late = False
    while len(taken) < TRIES and min(taken, default=BACK_S) >= BACK_S:
        before = work.pids("j")
        began = time.monotonic()
        taken.append(restarted(shoal.boss))
        shoal.meet()
        is_late = time.monotonic() - began > SURELY_RENEWED_S
        was_late = was_late or is_late
        eventually(lambda: running(work, "j") == 4, PATIENCE_S, "all run again")
        assert is_late or work.pids("j") == before, "they went on"
        # Those that came too late were killed, and start anew a moment later.
        eventually(lambda: all(map(is_alive, work.pids("j").values())), PATIENCE_S)
    work.cancel("j")
    work.finish()

    assert min(taken) < BACK_S, taken
    assert violations(work, rerun=["j"] if was_late else []) == []


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def running(work: Work, job: str) -> int:
    with work.shoal.boss.client() as client:
        return client.get(job).counts.running


def test_a_crash_before_and_after_a_snapshot_counts_loses_nothing(
    aged: Path, tmp_path: Path
) -> None:
    shutil.copytree(aged, tmp_path / "boss")
    shoal = LiveShoal(tmp_path, workers=0)
    boss = shoal.boss
    long = read_journal(boss)
    try:
        for name in ("journal.swap", "journal.swapped"):
            boss.start(f"{name}:kill")
            assert boss.died_by_failpoint(PATIENCE_S)
            known = {e.job.id for e in read_journal(boss) if isinstance(e, Submitted)}
            waiting = {id_ for id_ in known if id_.startswith("waits")}
            assert len(waiting) == WAITING
            assert (len(known) == WAITING + ENDED) == (name == "journal.swap")

        boss.start()
        boss.ready()

        with boss.client() as client:
            assert client.info().active_jobs == WAITING
        short = read_journal(boss)
        assert len(short) < COMPACTED_MAX < len(long)
        assert not any(isinstance(entry, Finished) for entry in short)
    finally:
        shoal.close()
