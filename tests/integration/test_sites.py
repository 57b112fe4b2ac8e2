"""Two sites with a long, narrow line between them: nobody declares them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.found_shoal import linked, until, without
from tests.integration.live_shoal import LiveNode, eventually

from shoal.api import shoal_pb2 as pb

if TYPE_CHECKING:
    from tests.integration.found_shoal import Found
    from tests.integration.namespaces import Internet

pytestmark = pytest.mark.integration

GPU = ("--gpus", "0", "--models", "T4", "--memories", "16000")
MEASURED_S = 120.0


@pytest.fixture
def sites(net: Internet, reef: Found) -> list[LiveNode]:
    """Start two nodes here and two at the far end of a line, each with one GPU."""
    net.lay_line(delay_ms=20, mbit=20)
    args = (*GPU, "--no-lan", *without("p2p"))
    nodes: list[LiveNode] = []
    for index, name in enumerate(("here1", "here2", "far1", "far2")):
        where, there = net.machine(name, 11 + index, far=name.startswith("far"))
        if not nodes:
            nodes.append(reef.found(name, where, *args, prefix=there))
        else:
            nodes.append(reef.join(name, where, *args, prefix=there))
    for node in nodes:
        eventually(lambda node=node: len(linked(node)) == 3, MEASURED_S, node.story)  # type: ignore[misc]
    return nodes


def places_of(node: LiveNode, job: str) -> set[str]:
    """Return the nodes on which the tasks of a job run."""
    with node.client() as client:
        tasks = client.get(job, tasks_max=8).tasks
    running = [task for task in tasks if task.state == pb.STATE_RUNNING]
    return {place.id for task in running for place in task.nodes}


def begin(node: LiveNode, job: str, tasks: int, stop: Path) -> set[str]:
    """Submit tasks that start together, one per GPU; return where they run."""
    spec: dict[str, object] = {
        "command": ["sh", "-c", until(stop)],
        "resources": {"gpu": 1},
    }
    if tasks > 1:
        spec |= {"nodes": tasks, "network": True}
    with node.client() as client:
        client.submit(pb.SubmitRequest(job_id=job, json=json.dumps(spec)))
    eventually(lambda: len(places_of(node, job)) == tasks, MEASURED_S, node.story)
    return places_of(node, job)


def sites_of(node: LiveNode) -> dict[str, str]:
    """Return the site of each node, as one of them sees it."""
    return {id_: view.site for id_, view in node.views().items()}


def said(node: LiveNode, *command: str) -> str:
    """Return what a command says to the user of a node."""
    env = os.environ | {"SHOAL_HOME": str(node.home.path)}
    shoal = str(Path(sys.executable).parent / "shoal")
    ran = subprocess.run(
        [shoal, *command], env=env, capture_output=True, text=True, check=False
    )
    return ran.stdout + ran.stderr


def sees(node: LiveNode, own: set[str], all_: int) -> bool:
    """Whether a node sees two sites, of which one is its own."""
    found = sites_of(node)
    here = {id_ for id_, site in found.items() if site == "here"}
    others = [site for site in found.values() if site.startswith("near ")]
    return here == own and len(others) == all_ - len(own) and len(set(others)) == 1


def test_a_gang_lands_in_one_site_though_nobody_declared_any(
    sites: list[LiveNode], tmp_path: Path
) -> None:
    here1, here2, far1, far2 = sites
    near, far = {here1.id, here2.id}, {far1.id, far2.id}
    eventually(lambda: sees(here1, near, 4), MEASURED_S, lambda: sites_of(here1))
    eventually(lambda: sees(far1, far, 4), MEASURED_S, lambda: sites_of(far1))

    listed = said(here1, "nodes")
    assert "SITE" in listed, listed
    assert listed.count(" near ") == 2, listed
    assert begin(here1, "one", 1, tmp_path / "one") <= near
    asked = ("--gpus", "1", "--nodes", "2", "--network", "--", "true")
    plan = said(here1, "plan", *asked)
    assert "network: its 2 nodes are in one site (near " in plan, plan
    assert begin(here1, "gang", 2, tmp_path / "gang") == far
    explained = said(here1, "explain", "gang")
    assert "its 2 nodes are in one site (near " in explained, explained
    assert "a step that adds up 100 MB takes about" in explained, explained
    (tmp_path / "gang").touch()
    (tmp_path / "one").touch()
