"""Signs of an owner, and whose processes use the machine."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

from shoal.core.lending.lend_rule import parse_lend
from shoal.drivers.gpus import FoundGpus, GpuUse
from shoal.runtime.lending.own_processes import OwnProcesses
from shoal.runtime.lending.owner_signs import OwnerSigns, latest_input
from shoal.runtime.lending.room_meter import stalled_milli

BURN = "import time\nwhile time.process_time() < {}: pass\n"
HOLD = "x = bytearray(64 << 20)\nprint(flush=True)\ninput()\n"


class OneGpu:
    """A GPU that one process keeps busy."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def find(self) -> FoundGpus:
        return FoundGpus()

    def uses(self) -> list[GpuUse]:
        return [GpuUse("0", 900, 7 << 30, ((self.pid, 6 << 30),), ((self.pid, 900),))]

    def close(self) -> None:
        """Nothing to let go of."""


def test_the_file_that_was_touched_last_is_the_latest_input(tmp_path: Path) -> None:
    now = time.time()
    for name, ago_s in (("mouse", 50.0), ("keys", 4.0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - 90.0, now - ago_s))

    found = latest_input([f"{tmp_path}/*"], now)

    assert found is not None
    assert (found.at, round(found.idle_s)) == (f"{tmp_path}/keys", 4)
    assert latest_input([f"{tmp_path}/none*"], now) is None


def test_a_key_at_a_terminal_counts_at_once() -> None:
    outer, inner = pty.openpty()
    place = os.ttyname(inner)
    os.utime(place, (0.0, 0.0))  # as if nobody had typed for long
    before = latest_input([place], time.time())
    os.write(outer, b"x\n")
    os.read(inner, 2)
    after = latest_input([place], time.time())
    for fd in (outer, inner):
        os.close(fd)

    assert before is not None
    assert before.idle_s > 1e6
    assert after is not None
    assert after.idle_s < 10.0
    assert after.at.startswith("pts/")


def test_tasks_and_their_dead_children_are_not_the_owner() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holds:
        assert holds.stdout is not None
        holds.stdout.readline()
        own = OwnProcesses()
        at, busy = time.monotonic(), time.process_time()
        done = subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)
        spent = 0.3 + time.process_time() - busy
        found = own.use()
        over_s = time.monotonic() - at
        stranger = OwnProcesses(root=holds.pid)
        holds.communicate(b"\n")

    assert done.returncode == 0
    assert holds.pid in found.pids
    assert found.memory_bytes >= 64 << 20
    all_milli = 1_000 * (os.cpu_count() or 1)
    assert found.others_cpu_milli <= all_milli - 1_000 * (spent - 0.1) / over_s
    assert stranger.use().pids == frozenset()


def test_what_carries_the_mark_is_a_task_wherever_it_was_started(
    tmp_path: Path,
) -> None:
    env = {**os.environ, "SHOAL_WORKER": "m" * 32}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=env, stdin=-1) as other:
        root = subprocess.Popen(["sleep", "60"])
        try:
            marked = OwnProcesses("m" * 32, root=root.pid)
            deadline = time.monotonic() + 30.0
            while other.pid not in (found := marked.use().pids):
                assert time.monotonic() < deadline
            strange = OwnProcesses("n" * 32, root=root.pid).use().pids
        finally:
            root.kill()
            root.wait()
            other.communicate(b"\n")

    assert found == {other.pid}
    assert strange == frozenset()


def test_a_gpu_that_another_program_uses_is_a_sign_of_the_owner(
    tmp_path: Path,
) -> None:
    own, file = OwnProcesses(), str(tmp_path / "none")
    rule = parse_lend("idle")

    seen = OwnerSigns(rule, own, OneGpu(1), [file]).look()
    assert (seen.gpu_milli, seen.input_idle_s) == (900, None)
    [use] = OneGpu(1).uses()
    assert (use.memory_of({1}), use.memory_of({2}), use.busy_without({1})) == (
        6 << 30,
        0,
        0,
    )
    away = OwnerSigns(parse_lend("away"), own, OneGpu(1), [file]).look()
    assert (away.gpu_milli, away.cpu_milli) == (0, 0)  # It asks for input alone.


def test_pressure_is_read_where_the_kernel_tells(tmp_path: Path) -> None:
    file = tmp_path / "memory"
    file.write_text("some avg10=23.51 avg60=1.00 avg300=0.00 total=9\nfull avg10=1.0\n")

    assert stalled_milli(file) == 235
    assert stalled_milli(tmp_path / "none") == 0
