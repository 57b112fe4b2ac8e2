"""A job goes on though the node that it was submitted to is gone for ever."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal

from shoal.api import shoal_pb2 as pb
from shoal.errors import ShoalError
from shoal.net.identity.petname import petname

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


@pytest.fixture
def shoal(tmp_path: Path) -> Iterator[LiveShoal]:
    tmp_path.chmod(0o755)
    made = LiveShoal(tmp_path, 3, worker_roles=("scheduler", "worker", "gate"))
    with live_shoal(made) as running:
        yield running


class KeptWork:
    """A job of twelve tasks that wait for a word, kept by two nodes."""

    def __init__(self, shoal: LiveShoal) -> None:
        self.shoal = shoal
        self.diary, self._go = shoal.folder / "diary", shoal.folder / "go"

    def submit(self) -> None:
        spec = {
            "command": ["sh", "-c", SCRIPT],
            "env": {"DIARY": str(self.diary), "GO": str(self._go)},
            "array": TASKS,
            "keepers": 2,
            "resources": {"gpu": 1, "cpu": 0.1, "ram": "64MB"},
        }
        with self.shoal.boss.client() as client:
            client.submit(pb.SubmitRequest(job_id="j", json=json.dumps(spec)))
        eventually(lambda: self.written("begin").total() == AT_ONCE, PATIENCE_S)

    def let_end(self) -> None:
        self._go.touch()

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


def taken_up(shoal: LiveShoal) -> LiveNode:
    """Wait until one of the other nodes has the job, and return it."""

    def heirs() -> list[LiveNode]:
        return [node for node in shoal.workers if job_at(node).id == "j"]

    eventually(lambda: len(heirs()) == 1, PATIENCE_S)
    [heir] = heirs()
    return heir


def is_done(node: LiveNode) -> bool:
    return job_at(node).state == pb.STATE_DONE


def test_a_job_outlives_the_node_it_was_submitted_to(shoal: LiveShoal) -> None:
    work = KeptWork(shoal)
    work.submit()

    shoal.boss.kill()
    heir = taken_up(shoal)
    work.let_end()
    with heir.client() as client:
        ends = [job.state for job in client.watch("j", timeout_s=PATIENCE_S)]
        told = client.logs(pb.LogsRequest(job="j", task=str(TASKS - 1)))
        printed = b"".join(piece.data for piece in told).decode()
    other = next(node for node in shoal.workers if node is not heir)
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


def test_a_scheduler_that_returns_says_who_has_its_job_now(shoal: LiveShoal) -> None:
    work = KeptWork(shoal)
    work.submit()
    shoal.boss.kill()
    heir = taken_up(shoal)

    shoal.boss.start()
    shoal.boss.ready()

    def said() -> str:
        with shoal.boss.client() as client:
            try:
                client.get("j")
            except ShoalError as error:
                return str(error) + error.hint
        return ""

    eventually(lambda: petname(heir.identity.node) in said(), PATIENCE_S, said)
    work.let_end()
    eventually(lambda: is_done(heir), PATIENCE_S)
    assert max(work.written("begin").values()) == 1
