"""A job goes on though the node that it was submitted to is gone for ever."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal

from shoal.api import shoal_pb2 as pb
from shoal.api.client.shipping import ship_all, take_outputs
from shoal.errors import ShoalError
from shoal.net.identity.petname import petname
from shoal.protocol.messages import Role

pytestmark = pytest.mark.integration

TASKS = 12
AT_ONCE = 6
PATIENCE_S = 180.0
SCRIPT = """
echo "begin $SHOAL_TASK_ID" >>"$DIARY"
n=0; while [ ! -e "$GO" ] && [ $n -lt 3000 ]; do sleep 0.1; n=$((n+1)); done
echo "last words of $SHOAL_TASK_ID"
echo "end $SHOAL_TASK_ID" >>"$DIARY"
"""
"""Tasks that go on until the test lets them end, so that it may take its time."""


MAKE = """
id=${SHOAL_TASK_ID##*.}
echo "begin $SHOAL_TASK_ID" >>"$DIARY"
n=0; while [ $id -gt 1 ] && [ ! -e "$GO" ] && [ $n -lt 3000 ]; do
  sleep 0.1; n=$((n+1)); done
mkdir out
echo "$id $(cat words.txt) $TOKEN" >out/part-$id
echo "end $SHOAL_TASK_ID" >>"$DIARY"
"""
"""Tasks with code, a secret and outputs; the first two wait for nobody."""

SUM = """
echo "begin $SHOAL_TASK_ID" >>"$DIARY"
cat $(find . -name 'part-*' | sort) words.txt >sum
echo "end $SHOAL_TASK_ID" >>"$DIARY"
"""


@pytest.fixture
def shoal(tmp_path: Path) -> Iterator[LiveShoal]:
    tmp_path.chmod(0o755)
    roles: tuple[Role, ...] = ("scheduler", "worker", "gate")
    boss = ("--no-worker", "--keepers", "2")
    made = LiveShoal(tmp_path, 3, worker_roles=roles, scheduler_args=boss)
    with live_shoal(made) as running:
        yield running


class KeptWork:
    """A job of twelve tasks that wait for a word. Two nodes keep it, unasked."""

    def __init__(self, shoal: LiveShoal) -> None:
        self.shoal = shoal
        self.diary, self.go = shoal.folder / "diary", shoal.folder / "go"

    def submit(self) -> None:
        spec = {
            "command": ["sh", "-c", SCRIPT],
            "env": {"DIARY": str(self.diary), "GO": str(self.go)},
            "array": TASKS,
            "resources": {"gpu": 1, "cpu": 0.1, "ram": "64MB"},
        }
        with self.shoal.boss.client() as client:
            client.submit(pb.SubmitRequest(job_id="j", json=json.dumps(spec)))
        eventually(lambda: self.written("begin").total() == AT_ONCE, PATIENCE_S)

    def let_end(self) -> None:
        self.go.touch()

    def written(self, what: str) -> Counter[str]:
        """Return how often each task began, or ended."""
        text = self.diary.read_text() if self.diary.exists() else ""
        pairs = [line.split() for line in text.splitlines()]
        return Counter(task for kind, task in pairs if kind == what)


def job_at(node: LiveNode) -> pb.Job:
    try:
        with node.client() as client:
            return client.get("j", tasks_max=100)
    except ShoalError:
        return pb.Job()


def said(node: LiveNode, *args: str) -> int:
    """Run a command at a node; return its exit code."""
    env = {**os.environ, "SHOAL_HOME": str(node.home.path)}
    command = [sys.executable, "-m", "shoal.cli", *args]
    return subprocess.run(command, env=env, check=False, timeout=PATIENCE_S).returncode


def taken_up(shoal: LiveShoal) -> LiveNode:
    """Wait until one of the other nodes has the job, and return it."""

    def heirs() -> list[LiveNode]:
        return [node for node in shoal.workers if job_at(node).id == "j"]

    eventually(lambda: len(heirs()) == 1, PATIENCE_S)
    [heir] = heirs()
    return heir


def is_kept(node: LiveNode) -> bool:
    """Whether two tasks are done, and most members have all of the job."""
    job = job_at(node)
    done = sum(task.state == pb.STATE_DONE for task in job.tasks)
    return done == 2 and any(keeper.whole for keeper in job.keepers)


def is_done(node: LiveNode) -> bool:
    return job_at(node).state == pb.STATE_DONE


def test_a_job_outlives_the_node_it_was_submitted_to(shoal: LiveShoal) -> None:
    work = KeptWork(shoal)
    work.submit()

    keepers = {keeper.node.id for keeper in job_at(shoal.boss).keepers}
    shoal.boss.kill()
    heir = taken_up(shoal)
    work.let_end()
    with heir.client() as client:
        ends = [job.state for job in client.watch("j", timeout_s=PATIENCE_S)]
        pieces = client.logs(pb.LogsRequest(job="j", task=str(TASKS - 1)))
        printed = b"".join(piece.data for piece in pieces).decode()
    others = [node for node in shoal.workers if node is not heir]
    other, third = sorted(others, key=lambda node: node.id not in keepers)
    with other.client() as client:
        found = client.jobs_everywhere(pb.ListRequest())

    once = Counter({f"j.main.{n}": 1 for n in range(TASKS)})
    assert ends[-1] == pb.STATE_DONE
    assert work.written("begin") == once, "what ran went on, and nothing ran twice"
    assert work.written("end") == once
    assert f"last words of j.main.{TASKS - 1}" in printed
    assert [n.node.id for n in found.nodes if any(j.id == "j" for j in n.jobs)] == [
        heir.id
    ]
    assert heir.id in keepers
    assert other.id in keepers
    assert third.id not in keepers
    assert said(other, "wait", "j") == 0, "any keeper knows who has it"
    assert said(third, "wait", "j") == 0, "and any other node of the owner asks them"
    assert said(other, "logs", "j", "--task", "0") == 0
    assert said(other, "show", "j") == 0


def test_a_scheduler_that_returns_says_who_has_its_job_now(shoal: LiveShoal) -> None:
    work = KeptWork(shoal)
    work.submit()
    shoal.boss.kill()
    heir = taken_up(shoal)

    shoal.boss.start()
    shoal.boss.ready()

    named = petname(heir.identity.node)
    eventually(lambda: named in told(shoal.boss), PATIENCE_S, lambda: told(shoal.boss))
    work.let_end()
    eventually(lambda: is_done(heir), PATIENCE_S)
    assert max(work.written("begin").values()) == 1


def told(node: LiveNode) -> str:
    """Return what a node says that has the job no longer."""
    with node.client() as client:
        try:
            client.get("j")
        except ShoalError as error:
            return str(error) + error.hint
    return ""


def test_a_scheduler_that_stood_still_starts_nothing_once_another_has_its_job(
    shoal: LiveShoal,
) -> None:
    """Both are there, and each was the scheduler of the job as far as it knew."""
    work = KeptWork(shoal)
    work.submit()
    eventually(lambda: any(k.whole for k in job_at(shoal.boss).keepers), PATIENCE_S)

    shoal.boss.signal(signal.SIGSTOP)
    heir = taken_up(shoal)
    work.let_end()
    shoal.boss.signal(signal.SIGCONT)
    eventually(lambda: is_done(heir), PATIENCE_S, lambda: job_at(heir))
    named = petname(heir.identity.node)
    eventually(lambda: named in told(shoal.boss), PATIENCE_S, lambda: told(shoal.boss))

    once = Counter({f"j.main.{n}": 1 for n in range(TASKS)})
    assert work.written("begin") == once
    assert work.written("end") == once


def test_code_outputs_secrets_and_steps_outlive_the_node(
    shoal: LiveShoal, tmp_path: Path
) -> None:
    work = KeptWork(shoal)
    code = tmp_path / "code"
    code.mkdir()
    (code / "words.txt").write_text("some words\n")
    env = {"DIARY": str(work.diary), "GO": str(work.go)}
    common = {"workdir": str(code), "env": env}
    common["resources"] = {"cpu": 0.1, "ram": "64MB"}
    make = {"command": ["sh", "-c", MAKE], "array": 4, **common}
    make |= {"outputs": ["out/*"], "secrets": ["TOKEN"]}
    total = {"command": ["sh", "-c", SUM], "needs": ["make"], **common}
    total |= {"outputs": ["sum"]}
    spec: dict[str, object] = {"steps": {"make": make, "total": total}, "keepers": 2}
    with shoal.boss.client() as client:
        client.set_secret("TOKEN", "hush")
        ship_all(client, spec)
        client.submit(pb.SubmitRequest(job_id="j", json=json.dumps(spec)))
    eventually(lambda: work.written("end").total() == 2, PATIENCE_S)
    eventually(lambda: work.written("begin").total() == 4, PATIENCE_S)
    eventually(lambda: is_kept(shoal.boss), PATIENCE_S)

    shoal.boss.kill()
    heir = taken_up(shoal)
    work.let_end()
    eventually(lambda: is_done(heir), PATIENCE_S, lambda: job_at(heir))
    with heir.client() as client:
        taken = take_outputs(client.outputs("j", "4"), client, tmp_path / "taken")

    lines = [f"{n} some words hush" for n in range(4)]
    [folder] = [each.folder for each in taken]
    assert (Path(folder) / "sum").read_text().splitlines() == [*lines, "some words"]
    assert set(work.written("begin").values()) == {1}
    assert work.written("begin").total() == 5


def test_a_node_that_leaves_hands_over_what_does_not_run_though_nobody_kept_it(
    shoal: LiveShoal, tmp_path: Path
) -> None:
    runs, waits = tmp_path / "runs", tmp_path / "waits"
    took: dict[str, object] = {
        "resources": {"gpu": 1, "cpu": 0.1, "ram": "64MB"},
        "array": AT_ONCE,
    }
    took |= {"keepers": 0}
    busy = {"command": ["sh", "-c", f"touch {runs}; sleep 600"], **took}
    later = {"command": ["sh", "-c", f"echo x >>{waits}"], **took}
    with shoal.boss.client() as client:
        client.submit(pb.SubmitRequest(job_id="busy", json=json.dumps(busy)))
        eventually(runs.exists, PATIENCE_S)
        client.submit(pb.SubmitRequest(job_id="j", json=json.dumps(later)))

    assert said(shoal.boss, "leave", "--yes") == 0
    heir = taken_up(shoal)
    eventually(lambda: is_done(heir), PATIENCE_S, lambda: job_at(heir))

    assert waits.read_text().split() == ["x"] * AT_ONCE
    assert not any(known(node, "busy") for node in shoal.workers), "it was cancelled"


def known(node: LiveNode, job: str) -> bool:
    """Whether a node has a job."""
    with node.client() as client:
        return any(each.id == job for each in client.jobs().jobs)


def test_a_node_that_is_stopped_hands_its_jobs_over_at_once(shoal: LiveShoal) -> None:
    work = KeptWork(shoal)
    work.submit()
    eventually(lambda: any(k.whole for k in job_at(shoal.boss).keepers), PATIENCE_S)

    shoal.boss.signal(signal.SIGTERM)
    assert shoal.boss.process is not None
    shoal.boss.process.wait(PATIENCE_S)

    heirs = [node for node in shoal.workers if job_at(node).id == "j"]
    assert len(heirs) == 1, "it has the job before the old node is gone"
    work.let_end()
    eventually(lambda: is_done(heirs[0]), PATIENCE_S)
    assert work.written("begin") == Counter({f"j.main.{n}": 1 for n in range(TASKS)})
