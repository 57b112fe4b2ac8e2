"""A job that was submitted far from all workers goes to a scheduler near them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.found_shoal import linked, until, without
from tests.integration.live_shoal import LiveNode, eventually
from tests.integration.test_kept_jobs import said

from shoal.api import shoal_pb2 as pb
from shoal.api.client.shipping import ship_all

if TYPE_CHECKING:
    from tests.integration.found_shoal import Found
    from tests.integration.namespaces import Internet

pytestmark = pytest.mark.integration

GPU = ("--gpus", "0", "--models", "T4", "--memories", "16000")
PATIENCE_S = 180.0


@pytest.fixture
def sites(net: Internet, reef: Found) -> list[LiveNode]:
    """Start a node without a worker here, and two with a GPU at the end of a line."""
    net.lay_line(delay_ms=20, mbit=20)
    args = ("--no-lan", *without("p2p"))
    nodes: list[LiveNode] = []
    for index, name in enumerate(("home", "far1", "far2")):
        where, there = net.machine(name, 11 + index, far=name.startswith("far"))
        if not nodes:
            own = ("--no-worker", "--forward", *args)
            nodes.append(reef.found(name, where, *own, prefix=there))
        else:
            nodes.append(reef.join(name, where, *GPU, *args, prefix=there))
    for node in nodes:
        eventually(lambda node=node: len(linked(node)) == 2, PATIENCE_S, node.story)  # type: ignore[misc]
    return nodes


def knows_sites(home: LiveNode) -> bool:
    """Whether a node knows that the others are at one site, which is not its own."""
    found = [view.site for id_, view in home.views().items() if id_ != home.id]
    return len(found) == 2 and len(set(found)) == 1 and found[0].startswith("near ")


def having(nodes: list[LiveNode], job: str) -> list[LiveNode]:
    """Return the nodes that schedule a job."""
    found: list[LiveNode] = []
    for node in nodes:
        with node.client() as client:
            if any(each.id == job for each in client.jobs(jobs_max=10).jobs):
                found.append(node)
    return found


def test_a_job_goes_to_a_scheduler_near_the_workers_and_needs_its_first_no_more(
    sites: list[LiveNode], tmp_path: Path
) -> None:
    home, *far = sites
    eventually(lambda: knows_sites(home), PATIENCE_S, home.story)
    code, go = tmp_path / "code", tmp_path / "go"
    code.mkdir()
    (code / "words.txt").write_text("some words\n")
    spec: dict[str, object] = {
        "command": ["sh", "-c", f"cat words.txt; echo $TOKEN; {until(go)}"],
        "workdir": str(code),
        "secrets": ["TOKEN"],
        "array": 3,
        "resources": {"gpu": 1},
    }

    with home.client() as client:
        client.set_secret("TOKEN", "hush")
        ship_all(client, spec)
        client.submit(pb.SubmitRequest(job_id="j", json=json.dumps(spec)))
    eventually(lambda: having(far, "j") != [], PATIENCE_S, home.story)
    [heir] = having(sites, "j")

    assert heir in far
    eventually(lambda: running(home) == 2, PATIENCE_S, heir.story)
    with home.client() as client:
        everywhere = client.jobs_everywhere(pb.ListRequest())
        asked = pb.LogsRequest(job="j", task="0")
        printed = b"".join(piece.data for piece in client.logs(asked))
    places = [n.node.id for n in everywhere.nodes for each in n.jobs if each.id == "j"]
    assert places == [heir.id]
    assert printed == b"some words\n****\n", "the secret came along, and is hidden"
    assert said(home, "show", "j") == 0

    home.kill()
    go.touch()
    eventually(lambda: is_done(heir), PATIENCE_S, heir.story)
    assert said(heir, "wait", "j") == 0


def running(node: LiveNode) -> int:
    """Count the tasks of the job that run, as any node says."""
    with node.client() as client:
        tasks = client.get("j", tasks_max=9).tasks
    return sum(task.state == pb.STATE_RUNNING for task in tasks)


def is_done(node: LiveNode) -> bool:
    with node.client() as client:
        return client.get("j", tasks_max=1).state == pb.STATE_DONE
