"""A node in an allocation lends the allocation, and its tasks stay in it."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration

MIB = 1 << 20
ALLOTTED_MIB = 2_000
MEMORY = Path("/sys/fs/cgroup/memory")
CPU = Path("/sys/fs/cgroup/cpu")
ENTER = 'for each in {}; do echo $$ > "$each/cgroup.procs"; done; exec "$@"'
HAS_FIRST = (
    os.geteuid() == 0
    and (MEMORY / "memory.limit_in_bytes").exists()
    and (CPU / "cpu.cfs_quota_us").exists()
)
by_groups = pytest.mark.skipif(
    not HAS_FIRST,
    reason="cgroup v1 for memory and CPU is not mounted, or we are not root",
)


@pytest.fixture
def job_group() -> Iterator[Path]:
    """Make groups as a batch system does: limits of a job, and a step below it.

    Yields the step's name, below each controller.
    """
    job = Path(f"shoal-test-job-{secrets.token_hex(4)}")
    made = [top / job for top in (MEMORY, CPU)]
    for each in made:
        (each / "step").mkdir(parents=True)
    (MEMORY / job / "memory.limit_in_bytes").write_text(str(ALLOTTED_MIB * MIB))
    (CPU / job / "cpu.cfs_quota_us").write_text("150000")
    yield job / "step"
    for each in made:
        eventually(partial(_removed, each))  # Once their processes are gone.


def _removed(top: Path) -> bool:
    """Remove a group with all below it; return whether nothing is left."""
    for group in sorted((g for g in top.rglob("*") if g.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            group.rmdir()
    with contextlib.suppress(OSError):
        top.rmdir()
    return not top.exists()


def here(home: CliHome) -> dict[str, Any]:
    found: dict[str, Any] = home.json("nodes")["nodes"][0]
    return found


@by_groups
def test_an_allocation_by_cgroups_is_the_machine_and_tasks_stay_in_it(
    tmp_path: Path, job_group: Path
) -> None:
    step = [str(top / job_group) for top in (MEMORY, CPU)]
    entering = ("sh", "-c", ENTER.format(" ".join(step)), "sh")
    with homes(tmp_path) as make:
        home = make("allotted")
        home.prefix = entering
        home.up("--port", "0", "--without", "p2p", "--no-sandbox")
        home.prefix = ()
        there = here(home)
        plan = home("plan", "--ram", "3GB", "--", "true")
        groups = home.ok("run", "--ram", "64MB", "--", "cat", "/proc/self/cgroup")

    assert there["total"]["memory_bytes"] == ALLOTTED_MIB * MIB
    assert there["total"]["cpu_milli"] == 1_500
    assert there["free"]["memory_bytes"] <= ALLOTTED_MIB * MIB
    assert "the most is 1.953 GiB" in plan.out
    lines = dict(line.split(":", 2)[1:] for line in groups.splitlines())
    for controller in ("memory", "cpu"):
        assert lines[controller].startswith(f"/{job_group}/shoal-"), groups


@pytest.mark.parametrize(
    ("told", "memory_mib", "cpus"),
    [
        ({"SLURM_MEM_PER_NODE": "2000"}, 2_000, 1),
        ({"SLURM_MEM_PER_CPU": "1500"}, 1_500, 1),
        ({"SLURM_MEM_PER_NODE": "2000", "SLURM_MEM_PER_CPU": "300"}, 300, 1),
    ],
    ids=str,
)
def test_an_allocation_of_slurm_is_the_machine(
    tmp_path: Path, told: dict[str, str], memory_mib: int, cpus: int
) -> None:
    with homes(tmp_path) as make:
        home = make("allotted")
        home.env |= {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": str(cpus), **told}
        home.up("--port", "0", "--without", "p2p")
        there = here(home)
        plan = home("plan", "--ram", "3GB", "--", "true")

    assert there["total"]["memory_bytes"] == memory_mib * MIB
    assert there["free"]["memory_bytes"] <= memory_mib * MIB
    assert there["total"]["cpu_milli"] == 1_000 * cpus
    assert "never" in plan.out, plan


@by_groups
def test_of_slurm_and_cgroups_the_least_counts(tmp_path: Path, job_group: Path) -> None:
    step = str(MEMORY / job_group)
    with homes(tmp_path) as make:
        home = make("allotted")
        home.prefix = ("sh", "-c", ENTER.format(step), "sh")
        home.env |= {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "4000"}
        home.up("--port", "0", "--without", "p2p", "--no-sandbox")
        there = here(home)

    assert there["total"]["memory_bytes"] == ALLOTTED_MIB * MIB
