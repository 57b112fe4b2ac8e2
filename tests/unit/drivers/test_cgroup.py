"""Groups of both versions of cgroups, in folders that look like theirs."""

import os
from pathlib import Path

import pytest

from shoal.drivers.limits.cgroup import (
    CONTROLLERS,
    CgroupLimits,
    Cgroups,
    FirstVersion,
    SecondVersion,
    find,
)
from shoal.drivers.limits.cgroup_entry import CgroupDoors

GIB = 1 << 30


def second(folder: Path, controllers: str = "cpu memory pids") -> Path:
    """Make what the kernel has in a group of version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "cgroup.controllers": controllers,
        "cgroup.procs": "",
        "cgroup.subtree_control": "",
    }.items():
        (folder / name).write_text(text, encoding="ascii")
    return folder


def first(folder: Path, limit: int = 1 << 63) -> str:
    """Make the hierarchies of version 1; return the lines of their mounts."""
    lines: list[str] = []
    for name in CONTROLLERS:
        group = folder / name / "user"
        group.mkdir(parents=True)
        (group / "memory.limit_in_bytes").write_text(str(limit), encoding="ascii")
        kind = f"cgroup cgroup rw,{name}"
        lines.append(f"1 2 0:1 / {folder / name} rw,relatime - {kind}")
    return "\n".join(lines)


def read(path: Path) -> str:
    return path.read_text(encoding="ascii")


def test_a_group_without_the_controllers_is_of_no_use(tmp_path: Path) -> None:
    assert (
        SecondVersion.open(second(tmp_path, "hugetlb memory"), "shoal-x", None)
        == "cgroup v2 has no control of cpu and pids here"
    )


def test_a_group_that_cannot_be_written_is_not_ours(tmp_path: Path) -> None:
    why = SecondVersion.open(tmp_path / "none", "shoal-x", None)

    assert isinstance(why, str)
    assert why.startswith("cgroup v2 is not delegated to this user")


def test_of_a_delegated_group_only_the_node_itself_moves(tmp_path: Path) -> None:
    parent = second(tmp_path)
    (parent / "cgroup.procs").write_text(f"4242\n{os.getpid()}\n", encoding="ascii")
    second(parent / "shoal-x")
    second(parent / "shoal-x-spare")

    found = SecondVersion.open(parent, "shoal-x", None)

    assert isinstance(found, SecondVersion)
    assert read(parent / "shoal-x" / "node" / "cgroup.procs") == str(os.getpid())
    assert read(parent / "cgroup.subtree_control") == "+cpu +memory +pids"
    assert found.home == (str(parent / "shoal-x" / "node" / "cgroup.procs"),)


def test_limits_of_version_2_are_those_of_the_attempt(tmp_path: Path) -> None:
    second(second(tmp_path) / "shoal-x")
    second(tmp_path / "shoal-x-spare")
    found = SecondVersion.open(tmp_path, "shoal-x", tmp_path / "home")
    assert isinstance(found, SecondVersion)
    slot = tmp_path / "shoal-x" / "slot-3"

    doors = found.doors(3)
    found.limit(3, CgroupLimits(GIB, 2_500, 64))

    assert doors == (str(slot / "cgroup.procs"),)
    assert found.home == (str(tmp_path / "home" / "cgroup.procs"),)
    assert read(slot / "memory.max") == str(GIB)
    assert read(slot / "memory.swap.max") == "0"
    assert read(slot / "memory.oom.group") == "1"
    assert read(slot / "cpu.max") == "250000 100000"
    assert read(slot / "pids.max") == "64"

    found.limit(3, CgroupLimits())
    assert read(slot / "memory.max") == "max"
    assert read(slot / "cpu.max") == "max 100000"


@pytest.mark.parametrize("version", [1, 2])
def test_spare_cpu_time_is_that_of_a_group_beside_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    if version == 1:
        top = tmp_path / "cpu"
        found, weight = opened(tmp_path, monkeypatch, limit=1 << 63), "cpu.shares"
    else:
        second(second(tmp_path) / "shoal-x")
        second(tmp_path / "shoal-x-spare")
        opening = SecondVersion.open(tmp_path, "shoal-x", tmp_path / "home")
        assert isinstance(opening, SecondVersion)
        top, found, weight = tmp_path, opening, "cpu.weight"
    spare = top / "shoal-x-spare"
    least = read(spare / weight)

    doors = found.doors(3, spare=True)
    found.limit(3, CgroupLimits(GIB, 500, 64, spare=True))
    found.hurry(really=True)
    hurried = read(spare / weight)
    found.hurry(really=False)

    entry = "tasks" if version == 1 else "cgroup.procs"
    assert str(spare / "slot-3" / entry) in doors
    assert 100 * int(least) <= int(hurried)
    assert read(spare / weight) == least
    assert not (top / "shoal-x" / "slot-3").exists()


def test_kills_for_memory_are_counted(tmp_path: Path) -> None:
    second(second(tmp_path) / "shoal-x")
    second(tmp_path / "shoal-x-spare")
    found = SecondVersion.open(tmp_path, "shoal-x", tmp_path)
    assert isinstance(found, SecondVersion)
    found.doors(0)

    assert found.out_of_memory(0) == 0
    events = "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n"
    (tmp_path / "shoal-x/slot-0/memory.events").write_text(events, encoding="ascii")
    assert found.out_of_memory(0) == 2


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> Cgroups:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    own = "".join(f"{n}:{name}:/user\n" for n, name in enumerate(CONTROLLERS))
    found = find("x", own, first(folder, limit))
    assert isinstance(found, FirstVersion)
    return found


def test_limits_of_version_1_are_those_of_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = opened(tmp_path, monkeypatch, limit=1 << 63)

    doors = found.doors(1)
    found.limit(1, CgroupLimits(GIB, 500, 64))

    slots = {name: tmp_path / name / "shoal-x" / "slot-1" for name in CONTROLLERS}
    assert doors == tuple(str(slot / "tasks") for slot in slots.values())
    assert found.home[0] == str(tmp_path / "cpu" / "user" / "tasks")
    assert read(slots["memory"] / "memory.limit_in_bytes") == str(GIB)
    assert read(slots["memory"] / "memory.memsw.limit_in_bytes") == str(GIB)
    assert read(slots["cpu"] / "cpu.cfs_quota_us") == "50000"
    assert read(slots["pids"] / "pids.max") == "64"


def test_who_is_limited_as_a_whole_gives_no_more_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = opened(tmp_path, monkeypatch, limit=GIB)

    assert found.doors(1)[1].startswith(str(tmp_path / "memory" / "user" / "shoal-x"))


def test_a_limit_of_a_group_above_the_nodes_is_kept_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch systems limit the job, and the process is in a group below."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    mounts = first(tmp_path / "v1")
    for name in CONTROLLERS:
        (tmp_path / "v1" / name / "user/task").mkdir()
    quota = tmp_path / "v1/cpu/user/cpu.cfs_quota_us"
    quota.write_text("50000\n", encoding="ascii")
    (tmp_path / "v1/memory/user/memory.limit_in_bytes").write_text(str(GIB))
    own = "".join(f"{n}:{name}:/user/task\n" for n, name in enumerate(CONTROLLERS))

    found = find("x", own, mounts)

    assert isinstance(found, FirstVersion)
    doors = dict(zip(CONTROLLERS, found.doors(1), strict=True))
    assert doors["cpu"].startswith(str(tmp_path / "v1/cpu/user/task/shoal-x"))
    assert doors["memory"].startswith(str(tmp_path / "v1/memory/user/task/shoal-x"))
    assert doors["pids"].startswith(str(tmp_path / "v1/pids/shoal-x"))


def test_a_limited_group_of_version_2_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    unit = second(second(tmp_path) / "unit")
    for base in (tmp_path, unit):
        second(base / "shoal-x")
        second(base / "shoal-x-spare")
    mounted = f"1 2 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw"

    free = find("x", "0::/unit\n", mounted)
    (unit / "memory.max").write_text(str(GIB), encoding="ascii")
    limited = find("x", "0::/unit\n", mounted)

    for found, base in ((free, tmp_path), (limited, unit)):
        assert isinstance(found, SecondVersion)
        assert found.doors(0) == (str(base / "shoal-x" / "slot-0" / "cgroup.procs"),)


def test_version_1_is_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)

    assert find("x", "1:memory:/\n", first(tmp_path)) == "cgroup v1 is for root only"


def test_empty_groups_of_an_earlier_life_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "memory" / "shoal-x" / "slot-7"
    left.mkdir(parents=True)

    found = opened(tmp_path, monkeypatch, limit=1 << 63)

    assert not left.exists()
    found.close()
    assert not left.parent.exists()


def test_a_supervisor_enters_groups_again_by_the_files_it_has_open(
    tmp_path: Path,
) -> None:
    doors, home = tmp_path / "slot", tmp_path / "home"
    doors.touch()
    home.touch()
    entry = CgroupDoors()

    for _ in range(2):
        with entry.inside([str(doors)], [str(home)]):
            assert len(doors.read_text()) == len(home.read_text()) + 1

    assert doors.read_text() == home.read_text() == "00"


def test_a_supervisor_goes_home_from_a_group_that_cannot_be_entered(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.touch()

    with (
        pytest.raises(FileNotFoundError),
        CgroupDoors().inside([str(tmp_path / "gone")], [str(home)]),
    ):
        pytest.fail("the task must not start")

    assert home.read_text() == "0"
