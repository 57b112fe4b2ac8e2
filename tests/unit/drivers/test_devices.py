"""What a machine has, detected or declared."""

from pathlib import Path

import pytest

from shoal.drivers.devices import capacity, declared_gpus
from shoal.drivers.gpus.detection import detect_gpus
from shoal.drivers.gpus.models import advertised_bytes
from shoal.drivers.gpus.visible import visible_gpus
from shoal.drivers.limits.machine_limits import (
    DeviceLimits,
    MemoryGroup,
    cgroup_limits,
    machine_limits,
    slurm_limits,
)
from shoal.errors import UsageError
from shoal.model.resources import GIB
from shoal.model.text.bounds import DEVICES_MAX

MIB = 1 << 20


def test_declared_gpus_are_those_of_the_lists() -> None:
    found = declared_gpus("0,1", "RTX3090, a100", "24576,81920")

    first, second = found.devices
    assert (first.id, first.model, first.memory_bytes) == ("0", "RTX3090", 24 * GIB)
    assert (second.id, second.model, second.memory_bytes) == ("1", "A100", 80 * GIB)
    assert found.files["1"][:2] == ("/dev/nvidia1", "/dev/nvidiactl")


def test_declared_gpus_need_neither_models_nor_memories() -> None:
    [device] = declared_gpus("fake").devices

    assert (device.id, device.model, device.memory_bytes) == ("fake", "", 0)
    assert declared_gpus("").devices == ()


@pytest.mark.parametrize(
    ("gpus", "models", "memories", "what"),
    [
        ("0,1", "A100", "", "--models has 1 entries and --gpus has 2"),
        ("0,1", "", "1,2,3", "--memories has 3 entries and --gpus has 2"),
        ("", "A100", "", "--models has 1 entries and --gpus has 0"),
        ("0,0", "", "", "--gpus 0,0 names a GPU twice"),
        ("0", "A100", "24GB", "--memories has '24GB'"),
        ("0", "A100", "-1", "--memories has '-1'"),
        ("0", "A100", "9" * 30, f"--memories has '{'9' * 30}'"),
        ("0,,1", "", "", "'' cannot name a GPU or a model"),
        (",".join(map(str, range(DEVICES_MAX + 1))), "", "", "65 GPUs are too many"),
    ],
)
def test_lists_that_do_not_fit_are_wrong_usage(
    gpus: str, models: str, memories: str, what: str
) -> None:
    with pytest.raises(UsageError) as caught:
        declared_gpus(gpus, models, memories)

    assert caught.value.what == what
    assert caught.value.because
    assert caught.value.hint


@pytest.mark.parametrize(
    ("shown_mib", "printed_gib"),
    [
        (24_564, 24),  # RTX 4090
        (24_576, 24),  # RTX 3090
        (15_109, 16),  # T4
        (16_160, 16),  # V100
        (22_731, 24),  # A10G
        (23_034, 24),  # L4
        (40_536, 40),  # A100
        (46_068, 48),  # A40
        (49_140, 48),  # A6000
        (81_559, 80),  # H100
        (95_830, 94),  # H100 NVL
        (143_771, 141),  # H200
        (11_019, 11),  # RTX 2080 Ti
    ],
)
def test_a_gpu_has_the_memory_that_is_printed_on_it(
    shown_mib: int, printed_gib: int
) -> None:
    assert advertised_bytes(shown_mib * MIB) == printed_gib * GIB


@pytest.mark.parametrize("shown", [0, 500 * MIB, 27 * GIB, 5_000 * GIB])
def test_a_size_that_nobody_sells_stays_as_it_is(shown: int) -> None:
    assert advertised_bytes(shown) == shown


def test_a_machine_lends_what_it_has(tmp_path: Path) -> None:
    gpus = declared_gpus("0", "A100", "81920").devices

    found = capacity(tmp_path, gpus, (("b", "2"), ("a", "1")))

    assert found.cpu_milli >= 1_000
    assert found.memory_bytes > 100 * MIB
    assert found.disk_bytes > 0
    assert found.devices == gpus
    assert found.labels == (("a", "1"), ("b", "2"))


def test_a_machine_without_a_driver_has_no_gpus() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")

    assert detect_gpus().devices == ()


# Limits of cgroups, in folders that look like theirs.


def mount(kind: str, at: Path, root: str = "/", options: str = "rw") -> str:
    return f"30 23 0:26 {root} {at} rw,relatime - {kind} cgroup {options}\n"


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text, encoding="ascii")


def test_the_tightest_limit_of_a_group_and_those_above_counts(tmp_path: Path) -> None:
    put(tmp_path / "a" / "b", memory_max="max\n", cpu_max="150000 100000\n")
    put(tmp_path / "a", memory_max=f"{4 * GIB}\n", cpu_max="max 100000\n")
    put(tmp_path, memory_max=f"{8 * GIB}\n")

    found = cgroup_limits("0::/a/b\n", mount("cgroup2", tmp_path))

    assert found == DeviceLimits(cpu_milli=1_500, memory_bytes=4 * GIB)


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    put(tmp_path, memory_max=f"{GIB}\n")

    inside = mount("cgroup2", tmp_path, root="/docker/abc")

    assert cgroup_limits("0::/docker/abc\n", inside).memory_bytes == GIB


def test_limits_of_the_first_version_count_too(tmp_path: Path) -> None:
    memory, cpu = tmp_path / "memory", tmp_path / "cpu"
    put(memory / "job", memory_limit_in_bytes=f"{2 * GIB}\n")
    put(memory, memory_limit_in_bytes="9223372036854771712\n")
    put(cpu, cpu_cfs_quota_us="50000\n", cpu_cfs_period_us="100000\n")
    mounts = mount("cgroup", memory, options="rw,memory")
    mounts += mount("cgroup", cpu, options="rw,cpu,cpuacct")

    found = cgroup_limits("4:memory:/job\n1:cpu,cpuacct:/\n", mounts)

    assert found == DeviceLimits(cpu_milli=500, memory_bytes=2 * GIB)


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_limits("", "") == DeviceLimits()
    assert cgroup_limits("0::/\n", mount("cgroup2", tmp_path)) == DeviceLimits()
    assert (
        cgroup_limits("1:name=systemd:/\n", mount("cgroup", tmp_path)) == DeviceLimits()
    )


def test_free_memory_is_read_where_the_limit_is(tmp_path: Path) -> None:
    second, first = tmp_path / "second", tmp_path / "first"
    put(second / "a", **{"memory.max": "max"})
    put(
        second / "a/b",
        **{"memory.max": str(4 * GIB), "memory.current": str(3 * GIB)},
        **{"memory.stat": f"anon {GIB}\ninactive_file {GIB}\n"},
    )
    put(first / "job", **{"memory.stat": "rubbish\n"})
    (first / "job/memory.limit_in_bytes").write_text(str(2 * GIB))
    (first / "job/memory.usage_in_bytes").write_text(str(3 * GIB))

    found = MemoryGroup.find("0::/a/b\n", mount("cgroup2", second))
    assert found.available(9 * GIB) == 2 * GIB
    older = MemoryGroup.find(
        "4:memory:/job\n", mount("cgroup", first, options="memory")
    )
    assert older.available(9 * GIB) == 0
    assert MemoryGroup.find("0::/a\n", mount("cgroup2", second)).available(7) == 7


def test_of_groups_in_each_other_the_one_nearest_to_its_limit_counts(
    tmp_path: Path,
) -> None:
    for group, most, used in (("a", 8, 7), ("a/b", 4, 1)):
        files = {"memory.max": str(most * GIB), "memory.current": str(used * GIB)}
        put(tmp_path / group, **files)

    found = MemoryGroup.find("0::/a/b\n", mount("cgroup2", tmp_path))

    assert found.available(99 * GIB) == GIB  # What is beside `b` in `a` has the rest.


# Allotments of Slurm, and GPUs that are hidden.

UUIDS = {"0": "GPU-aa11", "1": "GPU-aa22", "2": "GPU-bb33"}


@pytest.mark.parametrize(
    ("env", "left"),
    [
        ({}, "012"),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, "02"),
        ({"CUDA_VISIBLE_DEVICES": ""}, ""),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, "0"),
        ({"CUDA_VISIBLE_DEVICES": "1,9,2"}, "1"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bb,GPU-aa1"}, "02"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa"}, ""),  # Two begin like that.
        ({"CUDA_VISIBLE_DEVICES": "1,1"}, "1"),
        ({"SLURM_JOB_GPUS": "0,2"}, "02"),
        ({"SLURM_JOB_GPUS": "0,2", "SLURM_STEP_GPUS": "2"}, "2"),
        ({"SLURM_JOB_GPUS": "0,2", "CUDA_VISIBLE_DEVICES": "1"}, "1"),
        ({"SLURM_JOB_GPUS": "6,7"}, "012"),  # Slurm hides the others already.
        ({"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "1,2"}, "1"),
        ({"SLURM_STEP_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""}, ""),
    ],
)
def test_gpus_that_the_environment_hides_are_not_lent(
    env: dict[str, str], left: str
) -> None:
    assert "".join(visible_gpus(UUIDS, env)) == left


def test_what_slurm_allotted_is_the_size_of_the_machine(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "1"}

    assert slurm_limits({**job, "SLURM_MEM_PER_NODE": "2048"}) == DeviceLimits(
        1_000, 2 * GIB
    )
    assert slurm_limits({**job, "SLURM_MEM_PER_CPU": "512"}).memory_bytes == GIB // 2
    assert slurm_limits({**job, "SLURM_MEM_PER_NODE": "0"}).memory_bytes is None
    per_gpu = {**job, "SLURM_JOB_GPUS": "0,3", "SLURM_MEM_PER_GPU": "1024"}
    assert slurm_limits(per_gpu).memory_bytes == 2 * GIB
    both = {**job, "SLURM_MEM_PER_NODE": "2048", "SLURM_MEM_PER_CPU": "512"}
    assert slurm_limits(both).memory_bytes == GIB // 2
    assert slurm_limits({"SLURM_CPUS_ON_NODE": "1"}) == DeviceLimits()
    assert slurm_limits({**job, "SLURM_CPUS_ON_NODE": "many"}) == DeviceLimits()
    assert machine_limits({**job, "SLURM_MEM_PER_NODE": "16"}).memory_bytes == 16 * MIB


@pytest.mark.parametrize(
    ("listed", "node", "cpus"),
    [
        ("4", "0", 4),
        ("8(x2),4", "1", 8),
        ("8(x2),4", "2", 4),
        ("8(x2),4", "3", None),
        ("all", "0", None),
        ("", "0", None),
    ],
)
def test_cpus_are_those_of_this_node_of_the_job(
    listed: str, node: str, cpus: int | None
) -> None:
    env = {"SLURM_JOB_ID": "7", "SLURM_NODEID": node, "SLURM_MEM_PER_CPU": "256"}

    found = slurm_limits({**env, "SLURM_JOB_CPUS_PER_NODE": listed})

    assert found.cpu_milli == (None if cpus is None else 1_000 * cpus)
    assert found.memory_bytes == (None if cpus is None else cpus * 256 * MIB)
