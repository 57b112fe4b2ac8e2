"""A whole node under attack: its memory is bounded, and it serves on."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal
from tests.integration.live_work import Work, violations

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
ATTACKERS = 200
ATTACK_S = 4.0
GROWTH_BYTES_MAX = 64 << 20
PATIENCE_S = 90.0


@contextmanager
def attackers(target: LiveNode, member: LiveNode, seed: int) -> Iterator[None]:
    with target.client() as client:
        info = client.info()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.integration.node_attackers"),
            *(info.addresses[0], info.api_address, str(member.home.path)),
            *(str(ATTACKERS), str(seed)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"attacking\n"
        yield
        assert process.poll() is None, "the attackers gave up"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def memory_of(node: LiveNode) -> int:
    assert node.process is not None
    return int(psutil.Process(node.process.pid).memory_info().rss)


def attack_and_serve(folder: Path, seconds: float, seed: int) -> str:
    """Let jobs run through an attack of so long; return how the memory has grown."""
    shoal = LiveShoal(folder)
    bad = shoal.workers.pop()
    shoal.nodes.remove(bad)
    with live_shoal(shoal):
        work = Work(shoal)
        work.mixed("before", endless=1)
        work.finish()
        before = memory_of(shoal.boss)
        growth: list[int] = []

        with attackers(shoal.boss, bad, seed):
            since = time.monotonic()
            work.mixed("during", endless=1)
            while time.monotonic() < since + seconds:
                assert shoal.boss.alive, shoal.boss.log()
                growth.append(memory_of(shoal.boss) - before)
                time.sleep(0.1)
            work.finish(PATIENCE_S)
            growth.append(memory_of(shoal.boss) - before)

        assert max(growth) < GROWTH_BYTES_MAX
        eventually(lambda: bad.id not in shoal.boss.views(), PATIENCE_S)
        found = violations(work)
        assert not found, "\n".join(found)
    return f"memory +{max(growth) >> 20} MiB"


def test_two_hundred_attackers_leave_memory_bounded_and_the_node_serves(
    tmp_path: Path,
) -> None:
    attack_and_serve(tmp_path, ATTACK_S, seed=7)
