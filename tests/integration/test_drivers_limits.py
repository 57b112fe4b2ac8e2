"""A task keeps to what it has booked, whether the kernel or its supervisor looks."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.unit.drivers.orders import Watched, order, run, shell, with_driver

from shoal.drivers import TaskMount
from shoal.drivers.limits import cgroup
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.model.job import NeedSource
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

MIB = 1 << 20
PYTHON = "/usr/bin/python3"
WATCHED = ProcessSettings(cgroups=False)
GROUPED = ProcessSettings()
GROUPS = cgroup.find("of-a-test")
HAS_GROUPS = not isinstance(GROUPS, str)
if not isinstance(GROUPS, str):
    GROUPS.close()
WAYS = [
    pytest.param(WATCHED, id="watched"),
    pytest.param(
        GROUPED,
        id="grouped",
        marks=pytest.mark.skipif(not HAS_GROUPS, reason="no cgroups for this user"),
    ),
]
grouped = WAYS[1]
KILLED = 128 + signal.SIGKILL


def limited(
    root: Path,
    program: str,
    settings: ProcessSettings,
    memory: int = 0,
    cpu_milli: int = 0,
) -> tuple[Outcome, Watched]:
    one = order(PYTHON, "-c", program, allocation=Allocation(cpu_milli, memory))
    return run(root, one, settings)


def groups_of(mark: str) -> list[Path]:
    # Groups of other tests vanish meanwhile, which `rglob` does not bear.
    return [
        Path(parent, name)
        for parent, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name in (f"shoal-{mark}", f"shoal-{mark}-spare")
    ]


FILL = """
import time
with open("{place}/large", "wb") as file:
    for _ in range(200):
        try:
            file.write(bytes(1 << 20))
            file.flush()
        except OSError:
            break
time.sleep(60)
"""


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("place", ["/dev/shm", "/tmp"])
def test_a_task_that_fills_shared_memory_is_killed_with_the_numbers(
    tmp_path: Path, settings: ProcessSettings, place: str
) -> None:
    program = FILL.format(place=place)

    outcome, _ = limited(tmp_path, program, settings, memory=64 * MIB)

    assert outcome.exit_code == KILLED
    assert outcome.reason.startswith("killed: it used ")
    assert outcome.reason.endswith("its limit is 64 MiB")


SHARED = """
import mmap, os
size = 80 << 20
fd = os.open("/dev/shm/one", os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, size)
maps = [mmap.mmap(fd, size)]
maps[0].write(bytes(size))
if not os.fork():
    bytes(maps[0])
    import time; time.sleep(60)
import time; time.sleep(1.2)
print("fine", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("settings", WAYS)
def test_memory_that_processes_share_counts_once(
    tmp_path: Path, settings: ProcessSettings
) -> None:
    outcome, watched = limited(tmp_path, SHARED, settings, memory=260 * MIB)

    assert watched.text() == "fine\n", outcome
    assert outcome.exit_code == 0


@pytest.mark.parametrize("settings", WAYS)
def test_the_next_task_of_a_supervisor_begins_with_all_of_its_memory(
    tmp_path: Path, settings: ProcessSettings
) -> None:
    async def act(driver: ProcessDriver) -> list[Outcome]:
        full = "head -c 90M /dev/zero > /dev/shm/left; sync"
        memory = Allocation(memory_bytes=128 * MIB)
        one = [shell(full, allocation=memory) for _ in range(3)]
        return [await driver.run(each, Watched()) for each in one]

    assert [each.exit_code for each in with_driver(tmp_path, act, settings)] == [0] * 3


@pytest.mark.parametrize("settings", [grouped])
def test_a_task_that_booked_hardly_any_memory_starts_after_one_that_used_much(
    tmp_path: Path, settings: ProcessSettings
) -> None:
    async def act(driver: ProcessDriver) -> list[Outcome]:
        large = shell("head -c 90M /dev/zero > /dev/shm/left")
        small = [shell("true", allocation=Allocation(memory_bytes=n)) for n in (1, MIB)]
        return [await driver.run(each, Watched()) for each in (large, *small)]

    outcomes = with_driver(tmp_path, act, settings)

    assert [each.exit_code for each in outcomes] == [0] * 3, outcomes


@pytest.mark.parametrize("settings", [grouped])
def test_a_task_gets_no_more_cpu_than_it_has_booked(
    tmp_path: Path, settings: ProcessSettings
) -> None:
    program = """
import os, time
until = time.monotonic() + 1.0
for _ in range(3): os.fork()
while time.monotonic() < until: pass
try:
    while True: os.wait()
except ChildProcessError:
    used = os.times()
    print(used.user + used.system + used.children_user + used.children_system)
"""
    _, watched = limited(tmp_path, program, settings, cpu_milli=250)

    assert 0.05 < float(watched.text().split()[-1]) < 0.6


@pytest.mark.skipif(not HAS_GROUPS, reason="no cgroups for this user")
def test_the_kernel_limits_the_processes_of_a_task(tmp_path: Path) -> None:
    forks = "for n in $(seq 80); do sleep 20 & done; wait"
    bare = ProcessSettings(sandbox=False, processes_max=40)

    _, watched = run(tmp_path, shell(f"({forks}) 2>&1; true"), bare)

    assert "fork" in watched.text().lower()


MEMFD = """
import os, time
fd = os.memfd_create("hidden")
for _ in range(200):
    os.write(fd, bytes(1 << 20))
time.sleep(60)
"""


@pytest.mark.parametrize("settings", WAYS)
def test_a_file_without_a_name_counts(
    tmp_path: Path, settings: ProcessSettings
) -> None:
    outcome, _ = limited(tmp_path, MEMFD, settings, memory=64 * MIB)

    assert outcome.exit_code == KILLED
    assert outcome.reason.endswith("its limit is 64 MiB")


@pytest.mark.parametrize("settings", [grouped])
def test_nothing_is_left_of_the_groups_of_a_driver(
    tmp_path: Path, settings: ProcessSettings
) -> None:
    async def act(driver: ProcessDriver) -> list[Path]:
        await driver.run(order("/bin/true"), Watched())
        return await asyncio.to_thread(groups_of, driver.mark)

    made = with_driver(tmp_path, act, settings)

    assert made
    assert not any(path.exists() for path in made)


# Disk.


def disk(root: Path, program: str, disk_bytes: int = 24 * MIB) -> Outcome:
    one = order(PYTHON, "-c", program, allocation=Allocation(disk_bytes=disk_bytes))
    return run(root, one, GROUPED)[0]


TOO_MUCH = {
    "one large file": """
with open("large", "wb", buffering=0) as file:
    for _ in range(64): file.write(bytes(1 << 20))
""",
    "many large files": """
for n in range(10):
    with open(f"large{n}", "wb") as file: file.write(bytes(10 << 20))
""",
    "many small files": """
import os
with open("large", "wb") as file: file.write(bytes(20 << 20))
for n in range(8):
    os.mkdir(str(n))
    for m in range(1_000): os.close(os.open(f"{n}/{m}", os.O_CREAT))
""",
    "a file that was removed": """
import os
files = [os.open(f"gone{n}", os.O_CREAT | os.O_WRONLY) for n in range(4)]
for n, file in enumerate(files):
    os.unlink(f"gone{n}")
    os.write(file, bytes(15 << 20))
""",
    "folders in folders": """
import os
for _ in range(600):
    os.mkdir("a"); os.chdir("a")
""",
}


@pytest.mark.parametrize("how", TOO_MUCH)
def test_a_task_that_uses_too_much_disk_is_killed_by_the_numbers(
    tmp_path: Path, how: str
) -> None:
    outcome = disk(tmp_path, f"{TOO_MUCH[how]}\nimport time; time.sleep(60)")

    assert outcome.exit_code == KILLED
    assert outcome.reason.startswith("killed: it")
    deep = "its folders are more than 512 deep"
    assert outcome.reason.endswith(("its limit is 24 MiB", deep))


def test_a_task_that_fills_its_cache_is_killed_while_it_does(tmp_path: Path) -> None:
    cache = tmp_path / "kept"
    cache.mkdir()
    mount = TaskMount(
        source=str(cache),
        place="/cache/hf",
        writable=True,
        ours=True,
        variable="HF_HOME",
        bytes_max=20 * MIB,
    )
    program = "head -c 40M /dev/zero > $HF_HOME/large; sleep 60"
    one = msgspec.structs.replace(shell(program), mounts=(mount,))

    outcome, _ = run(tmp_path / "root", one, GROUPED)

    assert outcome.exit_code == KILLED
    assert "its cache has 40 MiB" in outcome.reason
    assert "may have 20 MiB; `shoal up --environments`" in outcome.reason


FRUGAL = """
import os, time
for n in range(4):
    with open(f"sparse{n}", "wb") as file: file.truncate(20 << 20)
with open("one", "wb") as file: file.write(bytes(15 << 20))
for n in range(5): os.link("one", f"two{n}")
for _ in range(3):
    with open("again", "wb") as file: file.write(bytes(5 << 20))
    os.unlink("again")
time.sleep(1.2)
"""


def test_holes_and_further_names_of_a_file_cost_no_disk(tmp_path: Path) -> None:
    outcome = disk(tmp_path, FRUGAL)

    assert (outcome.exit_code, outcome.reason) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_task_leaves_the_owner_of_the_disk_something(tmp_path: Path) -> None:
    small = tmp_path / "disk"
    small.mkdir()
    size = "size=200m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", small], check=True)
    program = """
import time
with open("large", "wb") as file: file.write(bytes(170 << 20))
for n in range(40):
    with open(f"large{n}", "wb") as file: file.write(bytes(1 << 20))
    time.sleep(0.06)
time.sleep(60)
"""
    try:
        outcome = disk(small / "tasks", program, disk_bytes=400 * MIB)
    finally:
        subprocess.run(["umount", small], check=True)

    assert outcome.exit_code == KILLED
    assert "10 MiB are its owner's" in outcome.reason


def test_a_sandbox_that_is_gone_is_no_reason_to_run_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bwrap", "prlimit", "setpriv"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(programs))
    proof = tmp_path / "ran"

    async def act(driver: ProcessDriver) -> Outcome:
        assert driver.sandboxed
        (programs / "bwrap").unlink()
        return await driver.run(order("/bin/touch", str(proof)), Watched())

    outcome = with_driver(tmp_path / "tasks", act, GROUPED)

    assert outcome.kind == "not-started"
    assert "no sandbox for it" in outcome.reason
    assert not proof.exists()


HOLD = """
import os, sys, time
held = bytearray(300 << 20)
filled, fill = os.pipe()
if os.fork() == 0:
    more = bytearray(200 << 20)
    os.write(fill, b"!")
else:
    os.read(filled, 1)
time.sleep({seconds})
"""


@pytest.mark.parametrize("settings", WAYS)
def test_the_end_of_a_task_says_how_much_memory_all_its_processes_took(
    tmp_path: Path, settings: ProcessSettings
) -> None:
    program = "held = bytearray(300 << 20)\ndel held\n" + HOLD.format(seconds=2.5)

    outcome, _ = limited(tmp_path, program, settings)

    # The child has a copy of its parent's memory that nobody has written to: it may
    # count twice.
    assert outcome.exit_code == 0
    assert 500 * MIB < outcome.memory_bytes < 860 * MIB


def test_a_task_that_ends_at_once_took_nothing_that_was_seen(tmp_path: Path) -> None:
    outcome, _ = limited(tmp_path, "pass", WATCHED)

    assert outcome.memory_bytes < 64 * MIB


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize(("source", "code"), [("runs", 0), ("spec", KILLED)])
def test_memory_of_an_earlier_run_is_no_limit(
    tmp_path: Path, settings: ProcessSettings, source: NeedSource, code: int
) -> None:
    program = HOLD.format(seconds=1.5)
    one = order(PYTHON, "-c", program, allocation=Allocation(0, 100 * MIB))
    task = msgspec.structs.replace(one.task, memory_from=source)

    outcome, _ = run(tmp_path, msgspec.structs.replace(one, task=task), settings)

    assert outcome.exit_code == code
