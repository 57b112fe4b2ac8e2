"""A real Slurm lends workers while jobs wait, and gets all of them back."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually, promised
from tests.integration.real_slurm import RealSlurm, free_ports, missing, real_slurm

pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

Record = Callable[[str, object], None]
"""Keeps a figure for the file that `--junitxml` names."""

START_S = 5.0
ELSEWHERE_S = 2.0
MIB = 1 << 20
NOW = "date +%s.%N"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSlurm]:
    with real_slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def boss(
    slurm: RealSlurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CliHome]:
    """A node on the login machine, which lends nothing itself."""
    with homes(tmp_path_factory.mktemp("homes")) as make:
        home = make("boss")
        home.env["SLURM_CONF"] = slurm.env["SLURM_CONF"]
        home.up("--port", "0", "--listen", "127.0.0.1:0", "--no-worker")
        yield home
        eventually(lambda: not slurm.jobs(), within_s=30.0)


@pytest.fixture
def lending(boss: CliHome, slurm: RealSlurm) -> Iterator[None]:
    """Two workers of two CPUs at most, which leave soon."""
    options = ("--", "-c", "2", "--mem=1500")
    limits = ("--max", "2", "--idle", "6s", "--time-limit", "10m")
    boss.ok("alloc", "add", "slurm", *limits, *options)
    yield
    boss.ok("alloc", "remove", "slurm")
    eventually(lambda: not slurm.jobs(), within_s=30.0)
    gone = lambda: not boss.json("alloc", "list")["allocations"]  # noqa: E731
    eventually(gone, 30.0, lambda: boss.ok("alloc", "list", "--json"))


def workers(boss: CliHome) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = boss.json("nodes")["nodes"]
    return [node for node in nodes if node.get("total", {}).get("cpu_milli")]


def seen_in_arguments(text: str) -> bool:
    """Whether the arguments of any process of this machine hold a text."""
    found = False
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found |= text.encode() in each.read_bytes()
        except OSError:
            continue  # It has ended.
    return found


def test_an_idle_slurm_runs_the_first_task_soon_and_offers_what_it_allocated(
    boss: CliHome, slurm: RealSlurm, lending: None, record_testsuite_property: Record
) -> None:
    leaked = False

    def first_task_s() -> float:
        nonlocal leaked
        eventually(lambda: not slurm.jobs(), within_s=60.0)  # It was idle.
        asked_at = time.time()
        job = boss.ok("submit", "-q", "--", "date", "+%s.%N").strip()
        while not slurm.jobs() or boss.json("show", job)["job"]["state"] != "done":
            leaked |= seen_in_arguments("shoal1-")
            time.sleep(0.2)
        after_s = float(boss.ok("logs", job).split()[-1]) - asked_at
        record_testsuite_property("first task after s", round(after_s, 2))
        return after_s

    promised(first_task_s, START_S)

    assert not leaked
    [worker] = workers(boss)
    assert worker["total"]["cpu_milli"] == 2_000
    assert worker["total"]["memory_bytes"] == 1_500 * MIB
    eventually(lambda: not slurm.jobs(), within_s=60.0)
    eventually(lambda: "pilot 1 is gone" in boss.ok("alloc", "log", "slurm"), 30.0)


def test_the_task_of_a_preempted_worker_goes_on_elsewhere_at_once(
    boss: CliHome, slurm: RealSlurm, lending: None, record_testsuite_property: Record
) -> None:
    def elsewhere_s() -> float:
        long, short = (
            boss.ok("submit", "-q", "--cpus", "2", "--", "sh", "-c", work).strip()
            for work in (f"{NOW}; sleep 300", f"{NOW}; sleep 8")
        )
        eventually(lambda: len(boss.ok("logs", long).split()) == 1, within_s=60.0)
        first_at = boss.ok("logs", long)
        native = worker_of(boss, slurm, long)
        boss.ok("wait", "-q", short)
        place = slurm.run("squeue", "-h", "-j", native, "-o", "%N").strip()
        asked_at = time.time()
        rival = slurm.run(
            *("sbatch", "--parsable", "-p", "first", "-w", place, "--exclusive"),
            *("-o", "/dev/null", "--wrap", "exec sleep 300"),
        ).strip()
        eventually(lambda: boss.ok("logs", long) not in {first_at, ""}, within_s=60.0)
        again_at = float(boss.ok("logs", long).split()[-1])
        boss.ok("cancel", long)
        slurm.run("scancel", rival)
        eventually(lambda: not slurm.jobs(), within_s=60.0)
        record_testsuite_property("elsewhere after s", round(again_at - asked_at, 2))
        return again_at - asked_at

    promised(elsewhere_s, ELSEWHERE_S)


def worker_of(boss: CliHome, slurm: RealSlurm, job: str) -> str:
    """Return the Slurm job in which the task of a job runs."""
    [task] = boss.json("show", job)["tasks"]
    [found] = boss.json("alloc", "list")["allocations"]
    natives = {p["node"]["id"]: p["native"] for p in found["pilots"] if p["node"]}
    return str(natives[task["nodes"][-1]["id"]])


@pytest.mark.parametrize(
    ("partition", "why"),
    [("gpuu", "invalid partition specified: gpuu"), ("private", "Invalid user id")],
    ids=["a wrong partition", "an account without rights"],
)
def test_terms_that_slurm_refuses_are_told_once_and_paused(
    boss: CliHome, slurm: RealSlurm, partition: str, why: str
) -> None:
    refused = boss("alloc", "add", "slurm", "--name", "bad", "--", "-p", partition)
    job = boss.ok("submit", "-q", "--", "true").strip()
    dry = boss("alloc", "dry-run", "slurm", "--", "-p", partition)

    assert refused.code == 1
    assert refused.err.count(why) == 1
    assert "the allocation 'bad' is paused" in refused.err
    assert dry.code == 1
    assert why in dry.err
    [found] = boss.json("alloc", "list")["allocations"]
    assert found["state"] == "paused"
    assert found["pilots"] == []
    assert slurm.jobs() == []
    boss.ok("cancel", job)
    boss.ok("alloc", "remove", "bad")


def test_a_node_that_comes_back_knows_its_workers(
    slurm: RealSlurm, tmp_path: Path
) -> None:
    """It is killed while its first worker starts, and comes back at its address."""
    [port] = free_ports(1)
    begins = ("--port", "0", "--listen", f"127.0.0.1:{port}", "--no-worker")
    with homes(tmp_path) as make:
        home = make("login")
        home.env["SLURM_CONF"] = slurm.env["SLURM_CONF"]
        home.up(*begins)
        home.ok("alloc", "add", "slurm", "--max", "2", "--idle", "6s")
        job = home.ok("submit", "-q", "--", "sleep", "5").strip()
        eventually(lambda: len(slurm.jobs()) == 1, within_s=30.0)
        home.kill()
        home.up(*begins)
        home.ok("wait", "-q", job)

        said = home.ok("alloc", "log", "slurm")
        home.ok("alloc", "remove", "slurm")
        eventually(lambda: not slurm.jobs(), within_s=60.0)

    assert "pilot 1 has joined" in said
    assert "pilot 2" not in said


def test_the_guide_of_clusters_does_what_it_says(
    slurm: RealSlurm, tmp_path: Path
) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "clusters.md"
    blocks = re.findall(r"```shell\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    typed = [shlex.split(line.removeprefix("$ ")) for line in lines]

    with homes(tmp_path) as make:
        home = make("login")
        home.env["SLURM_CONF"] = slurm.env["SLURM_CONF"]
        said = [
            home.ok(*(word.replace(":4001", ":0") for word in words[1:]))
            for words in typed
        ]
        eventually(lambda: not slurm.jobs(), within_s=60.0)

    assert len(said) == len(lines) >= 9
    assert any("--parsable" in each for each in said)
    assert any("pilot 1 has joined" in each for each in said)
