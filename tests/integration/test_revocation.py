"""A node that is revoked is cut off everywhere, soon, with links and tasks and all."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.live_shoal import (
    LiveNode,
    LiveShoal,
    eventually,
    live_shoal,
    promised,
)
from tests.integration.live_work import Work, violations

pytestmark = pytest.mark.integration

EVERYWHERE_S = 5.0
PATIENCE_S = 60.0


@pytest.fixture
def shoal(tmp_path: Path) -> Iterator[LiveShoal]:
    made = LiveShoal(tmp_path, 3, worker_roles=("scheduler", "worker", "gate"))
    with live_shoal(made):
        for node in made.nodes:
            made.meet(boss=node)
        yield made


def revoke(by: LiveNode, node: LiveNode) -> None:
    with by.client() as client:
        client.revoke(node.id)


def cut_off(shoal: LiveShoal, out: LiveNode) -> float:
    """Revoke a worker; return how long it takes until nobody has a link to it."""
    others = [node for node in shoal.nodes if node is not out]
    since = time.monotonic()
    revoke(shoal.boss, out)
    eventually(
        lambda: not knowing(others, out), PATIENCE_S, lambda: knowing(others, out)
    )
    return time.monotonic() - since


def knowing(nodes: list[LiveNode], node: LiveNode) -> list[str]:
    """Return who is still linked to a node."""
    return [each.home.path.name for each in nodes if node.id in each.views()]


def test_a_revocation_cuts_live_links_everywhere_and_moves_the_tasks(
    shoal: LiveShoal,
) -> None:
    work = Work(shoal)
    slots = 2 * len(shoal.workers)
    work.order("j", {"array": slots - 2}, seconds=600, ends=frozenset({"cancelled"}))
    eventually(lambda: work.begun("j").total() == slots - 2, PATIENCE_S)
    out = max(shoal.workers, key=lambda worker: len(worker.task_processes()))

    cut_s = cut_off(shoal, out)

    shoal.workers.remove(out)
    eventually(lambda: len(elsewhere(work, out)) == slots - 2, PATIENCE_S)
    eventually(lambda: not out.task_processes(), PATIENCE_S, "it gives its tasks up")
    work.cancel("j")
    work.finish()
    assert violations(work, rerun=["j"]) == []
    if cut_s >= EVERYWHERE_S:
        promised(lambda: cut_off(shoal, shoal.workers.pop()), EVERYWHERE_S, tries=2)


def elsewhere(work: Work, out: LiveNode) -> list[int]:
    """Return the processes of tasks that run on others."""
    return [
        process.pid
        for worker in work.shoal.workers
        if worker is not out
        for process in worker.task_processes()
        if process.pid in work.pids("j").values()
    ]


def test_who_is_revoked_may_not_come_back_though_all_have_restarted(
    shoal: LiveShoal,
) -> None:
    out = shoal.workers.pop()
    others = [node for node in shoal.nodes if node is not out]
    revoke(shoal.boss, out)
    eventually(lambda: not knowing(others, out), PATIENCE_S)

    for node in shoal.nodes:
        node.kill()
    for node in shoal.nodes:
        node.start()
    for node in shoal.nodes:
        node.ready()
    for node in others:
        shoal.meet(boss=node)

    assert knowing(others, out) == []
    assert out.views().keys() == {out.id}
