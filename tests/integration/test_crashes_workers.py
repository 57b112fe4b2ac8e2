"""Workers that die or stand still: how soon their tasks run elsewhere, and only there.

The promised times hold for the best of some tries, because a busy machine delays
everything; what must never happen is checked in each of them.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.live_shoal import (
    LiveNode,
    LiveShoal,
    eventually,
    live_shoal,
    promised,
)
from tests.integration.live_work import Work, read_journal, violations

from shoal.core.durability.journal import Finished

pytestmark = pytest.mark.integration

TRIES = 4  # at the most, until one is quick enough
SEEN_S = 1.0
ELSEWHERE_S = 2.0
REPLACED_S = 11.0
PATIENCE_S = 60.0

FIRST_ENDS_WRONGLY = """
echo "begin $SHOAL_TASK_ID $SHOAL_ATTEMPT $$" >>"$DIARY/diary"
if mkdir "$DIARY/$SHOAL_TASK_ID"; then
    until [ -e "$DIARY/stopped" ]; do sleep 0.1; done
    exit 7
fi
until [ -e "$DIARY/may-end" ]; do sleep 0.1; done
echo "end $SHOAL_TASK_ID $SHOAL_ATTEMPT $$" >>"$DIARY/diary"
"""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with live_shoal(LiveShoal(tmp_path)) as shoal:
        yield Work(shoal)


def host_of(work: Work, job: str) -> LiveNode:
    """Return the worker that runs the one task of a job."""
    with work.shoal.boss.client() as client:
        [name] = client.get(job).nodes
    [found] = [worker for worker in work.shoal.workers if worker.id == name.id]
    return found


def seconds_until(condition: Callable[[], bool], since: float) -> float:
    eventually(condition, PATIENCE_S)
    return time.monotonic() - since


def test_a_killed_worker_is_missed_and_its_task_runs_elsewhere(work: Work) -> None:
    taken: list[tuple[float, float]] = []
    while len(taken) < TRIES and not is_soon(taken):
        taken.append(move(work, f"j{len(taken)}"))
    work.finish()

    assert is_soon(taken), taken
    assert violations(work, rerun=["j"]) == []


def is_soon(taken: list[tuple[float, float]]) -> bool:
    return any(seen < SEEN_S and elsewhere < ELSEWHERE_S for seen, elsewhere in taken)


def move(work: Work, job: str) -> tuple[float, float]:
    """Kill the worker of a task; return when it was missed, and the task elsewhere."""
    boss = work.shoal.boss
    work.order(job, seconds=600, ends=frozenset({"cancelled"}))
    eventually(lambda: work.begun(job).total() == 1, PATIENCE_S)
    victim = host_of(work, job)

    since = time.monotonic()
    victim.kill()
    seen_s = seconds_until(lambda: victim.id not in boss.views(), since)
    elsewhere_s = seconds_until(lambda: work.begun(job).total() > 1, since)

    assert host_of(work, job) is not victim
    assert not victim.task_processes()
    work.cancel(job)
    victim.start()
    victim.ready()
    work.shoal.meet()
    return seen_s, elsewhere_s


def test_a_worker_that_stood_still_is_replaced_and_fenced_when_it_wakes(
    tmp_path: Path,
) -> None:
    promised(lambda: replaced_s(Path(tempfile.mkdtemp(dir=tmp_path))), REPLACED_S)


def replaced_s(folder: Path) -> float:
    """Stop a worker; return how long it takes until its tasks run on another."""
    shoal = LiveShoal(folder)
    late, spare = shoal.workers
    shoal.workers.remove(spare)
    shoal.nodes.remove(spare)
    with live_shoal(shoal):
        work = Work(shoal)
        work.order("ends", script=FIRST_ENDS_WRONGLY)
        work.order("stays", seconds=600, ends=frozenset({"cancelled"}))
        eventually(lambda: work.begun().total() == 2, PATIENCE_S)
        [old] = work.pids("stays").values()
        shoal.workers.append(spare)
        shoal.nodes.append(spare)
        spare.start()
        spare.ready()
        shoal.meet()

        late.signal(signal.SIGSTOP)
        since = time.monotonic()
        (work.diary / "stopped").touch()
        took_s = seconds_until(lambda: work.begun().total() == 4, since)
        late.signal(signal.SIGCONT)

        # What it wakes up with, an exit code of 7 and a process, counts no more.
        eventually(lambda: not Path(f"/proc/{old}").exists(), PATIENCE_S)
        shoal.meet()
        assert work.states() == {"ends": "open", "stays": "open"}
        assert work.begun() == {"ends.main.0": 2, "stays.main.0": 2}
        (work.diary / "may-end").touch()
        work.cancel("stays")
        work.finish()
        ends = [e for e in read_journal(shoal.boss) if isinstance(e, Finished)]
        accepted = [str(end.attempt) for end in ends if end.task == "ends.main.0"]
        assert accepted == [_last_attempt(work, "ends.main.0")]
        assert violations(work, rerun=["ends", "stays"]) == []
        return took_s


def _last_attempt(work: Work, task: str) -> str:
    begun = [line for line in work.lines() if line[:2] == ["begin", task]]
    return begun[-1][2]


def test_a_node_that_dies_takes_its_tasks_along(work: Work) -> None:
    work.order("j", seconds=600, ends=frozenset({"cancelled"}))
    eventually(lambda: work.begun("j").total() == 1, PATIENCE_S)
    [pid] = work.pids("j").values()

    for worker in work.shoal.workers:
        worker.kill()

    eventually(lambda: not os.path.exists(f"/proc/{pid}"), PATIENCE_S)  # noqa: PTH110
