"""A training goes on though the node that it was submitted to is gone for ever."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal
from tests.integration.test_kept_jobs import PATIENCE_S, is_done, job_at, taken_up
from tests.integration.train_shoal import ARRAYS

from shoal.api import shoal_pb2 as pb
from shoal.api.client.shipping import ship_all, take_outputs

pytestmark = pytest.mark.integration

ROUNDS = 400
SLOWLY = 'time.sleep(0.0 if os.path.exists(os.environ["GO"]) else params.step_s)'


@pytest.fixture
def shoal(tmp_path: Path) -> Iterator[LiveShoal]:
    tmp_path.chmod(0o755)
    made = LiveShoal(tmp_path, 3, worker_roles=("scheduler", "worker", "gate"))
    with live_shoal(made) as running:
        yield running


def rounds_at(node: LiveNode) -> list[int]:
    """Return the rounds that the log of a job names, in order."""
    request = pb.LogsRequest(job="j", stream=pb.STREAM_STDOUT, all_attempts=True)
    with node.client() as client:
        text = b"".join(piece.data for piece in client.logs(request))
    lines = [line for line in text.split(b"\n") if line.startswith(b'{"event"')]
    said = [json.loads(line) for line in lines if line.endswith(b"}")]
    return [line["round"] for line in said if line["event"] == "round"]


def test_a_diloco_run_outlives_the_node_it_was_submitted_to(
    shoal: LiveShoal, tmp_path: Path
) -> None:
    code, go = tmp_path / "code", tmp_path / "go"
    code.mkdir()
    program = ARRAYS.replace("time.sleep(params.step_s)", SLOWLY)
    assert program != ARRAYS
    (code / "train.py").write_text(program)
    params = {"program": "train.py", "rounds": ROUNDS, "inner_steps": 10}
    spec: dict[str, object] = {
        "recipe": "diloco",
        "nodes": 2,
        "workdir": str(code),
        "env": {"GO": str(go)},
        "params": {**params, "gather": 120, "silence": 120, "checkpoint_every": 5},
        "keepers": 2,
        "resources": {"cpu": 0.5, "ram": "500MB"},
        "preemptible": False,  # Nor is it moved to what seems a better place.
    }
    with shoal.boss.client() as client:
        ship_all(client, spec)
        client.submit(pb.SubmitRequest(job_id="j", json=json.dumps(spec)))
    eventually(lambda: max(rounds_at(shoal.boss), default=0) >= 5, PATIENCE_S)

    shoal.boss.kill()
    heir = taken_up(shoal)
    after = max(rounds_at(heir), default=0)
    eventually(lambda: max(rounds_at(heir), default=0) > after + 3, PATIENCE_S)
    go.touch()
    eventually(lambda: is_done(heir), PATIENCE_S, lambda: job_at(heir))

    told = rounds_at(heir)
    job = job_at(heir)
    assert told[-1] == ROUNDS
    assert len(told) == len({*told}), "no round is run twice"
    assert {task.attempts for task in job.tasks} == {1}
    with heir.client() as client:
        take_outputs(client.outputs("j"), client, tmp_path / "taken")
    assert list(tmp_path.glob("taken/**/model.safetensors"))
