"""Tasks of other owners get only the CPU time that the owner's programs leave."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.integration.live_shoal import eventually, promised
from tests.unit.drivers.orders import Watched, shell, with_driver

from shoal.drivers import RunOrder
from shoal.drivers.limits import cgroup
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

BURN = "while :; do :; done # {}"
STAYS = "trap : TERM; echo up; while :; do sleep 0.1; done # {}"
OWNERS = "while True: pass"
WINDOW_S = 1.0
TICKS_S = os.sysconf("SC_CLK_TCK")
TASKS_PERCENT_MAX = 2.0
ENDS_S = 2.0
GROUPS = cgroup.find("of-an-owner")
HAS_GROUPS = not isinstance(GROUPS, str)
if not isinstance(GROUPS, str):
    GROUPS.close()
grouped = pytest.mark.skipif(not HAS_GROUPS, reason="no cgroups for this user")
WAYS = [
    pytest.param({}, id="sandbox and groups", marks=grouped),
    pytest.param({"sandbox": False}, id="groups", marks=grouped),
    pytest.param({"cgroups": False}, id="sandbox"),
    pytest.param({"sandbox": False, "cgroups": False}, id="neither"),
]


class Shared(NamedTuple):
    """How a CPU was shared, and how the task ended."""

    task_s: float
    owners_s: float
    ended_s: float
    outcome: Outcome


def shared(root: Path, one: RunOrder, settings: ProcessSettings, cpu: int) -> Shared:
    """Run a task and a program of the owner on one CPU, then stop the task."""

    async def act(driver: ProcessDriver) -> Shared:
        running = asyncio.create_task(driver.run(one, Watched()))
        await asyncio.to_thread(eventually, lambda: _called(str(root)) > 0)
        task = _called(str(root))
        os.sched_setaffinity(task, {cpu})
        owners = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OWNERS, start_new_session=True
        )
        try:
            os.sched_setaffinity(owners.pid, {cpu})
            await asyncio.sleep(0.2)  # Their shares settle.
            before = cpu_s(task), cpu_s(owners.pid)
            await asyncio.sleep(WINDOW_S)
            after = cpu_s(task), cpu_s(owners.pid)
            told_at = time.monotonic()
            driver.stop(one.attempt, 0.5)
            outcome = await running
            ended_s = time.monotonic() - told_at
        finally:
            owners.kill()
            await owners.wait()
        used = [then - first for first, then in zip(before, after, strict=True)]
        return Shared(used[0], used[1], ended_s, outcome)

    return with_driver(root, act, settings)


def _called(words: str) -> int:
    """Return the process of a shell that was given these words; 0 if none was."""
    own = str(os.getpid())
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and each.name != own:
            try:
                told = (each / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if told[0] == "/bin/sh" and words in told[2]:
                return int(each.name)
    return 0


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


@pytest.mark.parametrize("way", WAYS)
def test_a_program_of_the_owner_keeps_its_speed_beside_a_task_of_others(
    tmp_path: Path, way: dict[str, bool]
) -> None:
    settings = msgspec.structs.replace(ProcessSettings(owner_first=True), **way)
    one = msgspec.structs.replace(shell(BURN.format(tmp_path)), foreign=True)

    def end_s() -> float:
        found = shared(tmp_path, one, settings, max(os.sched_getaffinity(0)))
        both_s = found.task_s + found.owners_s
        assert found.owners_s > 0
        assert 100 * found.task_s <= TASKS_PERCENT_MAX * both_s + 100 / TICKS_S
        assert found.outcome.kind == "cancelled"
        return found.ended_s

    promised(end_s, ENDS_S)


@pytest.mark.parametrize("foreign", [False, True])
def test_other_tasks_share_the_cpu_as_ever(tmp_path: Path, foreign: bool) -> None:
    settings = ProcessSettings(owner_first=not foreign, sandbox=False)
    one = msgspec.structs.replace(shell(BURN.format(tmp_path)), foreign=foreign)

    found = shared(tmp_path, one, settings, max(os.sched_getaffinity(0)))

    assert found.task_s > 0.1 * found.owners_s


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root takes a task out of SCHED_IDLE"
)
@pytest.mark.parametrize("sandbox", [False, True])
def test_a_task_that_has_to_end_gets_the_cpu_time_for_it(
    tmp_path: Path, sandbox: bool
) -> None:
    settings = ProcessSettings(owner_first=True, sandbox=sandbox, cgroups=False)
    one = msgspec.structs.replace(shell(STAYS.format(tmp_path)), foreign=True)

    async def act(driver: ProcessDriver) -> None:
        watched = Watched()
        running = asyncio.create_task(driver.run(one, watched))
        await asyncio.to_thread(eventually, lambda: "up" in watched.text())
        task = _called(str(tmp_path))
        assert os.sched_getscheduler(task) == os.SCHED_IDLE
        driver.stop(one.attempt, 30.0)
        await asyncio.to_thread(
            eventually, lambda: os.sched_getscheduler(task) == os.SCHED_OTHER
        )
        driver.stop(one.attempt, 0.0)
        assert (await running).kind == "cancelled"

    with_driver(tmp_path, act, settings)
