"""Groups of cgroup v2, in folders that look like theirs."""

from pathlib import Path

from shoal.drivers.cgroup import Cgroups, own_group


def base(folder: Path, controllers: str = "cpu memory pids") -> Path:
    for name, text in {
        "cgroup.controllers": controllers,
        "cgroup.procs": "",
        "cgroup.subtree_control": "",
    }.items():
        (folder / name).write_text(text, encoding="ascii")
    return folder


def opened(folder: Path) -> Cgroups:
    cgroups = Cgroups.open(base(folder))
    assert isinstance(cgroups, Cgroups)
    return cgroups


def read(path: Path) -> str:
    return path.read_text(encoding="ascii")


def test_the_own_group_is_found_by_the_mount_of_the_second_version() -> None:
    mountinfo = "1 2 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

    assert own_group("0::/user/shoal\n", mountinfo) == Path("/sys/fs/cgroup/user/shoal")
    assert own_group("0::/\n", mountinfo) == Path("/sys/fs/cgroup")
    assert own_group("1:cpu:/\n", mountinfo) == "cgroup v2 is not mounted"
    assert own_group("0::/\n", "") == "cgroup v2 is not mounted"


def test_a_group_without_the_controllers_is_of_no_use(tmp_path: Path) -> None:
    assert (
        Cgroups.open(base(tmp_path, "hugetlb memory"))
        == "cgroup v2 has no control of pids here"
    )


def test_a_group_that_cannot_be_written_is_not_ours(tmp_path: Path) -> None:
    why = Cgroups.open(tmp_path / "none")

    assert isinstance(why, str)
    assert why.startswith("cgroup v2 is not delegated to this user")


def test_limits_are_those_of_the_attempt(tmp_path: Path) -> None:
    cgroups = opened(tmp_path)
    slot = tmp_path / "shoal-slot-3"

    cgroups.place(3, 42)
    cgroups.limit(3, 1 << 30)

    assert read(tmp_path / "cgroup.subtree_control") == "+memory +pids"
    assert read(slot / "cgroup.procs") == "42"
    assert read(slot / "memory.max") == str(1 << 30)
    assert read(slot / "memory.swap.max") == "0"
    assert read(slot / "pids.max") == "4096"

    cgroups.limit(3, 0)
    assert read(slot / "memory.max") == "max"


def test_kills_for_memory_are_counted(tmp_path: Path) -> None:
    cgroups = opened(tmp_path)
    cgroups.place(0, 42)

    assert cgroups.out_of_memory(0) == 0
    events = "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n"
    (tmp_path / "shoal-slot-0" / "memory.events").write_text(events, encoding="ascii")
    assert cgroups.out_of_memory(0) == 2
