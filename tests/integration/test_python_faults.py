"""Calls while interpreters and nodes are killed: every result comes, and comes once."""

import os
import random
import signal
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest
from tests.integration.calling import WAIT_S, client, eventually, lane_pids, node

from shoal.errors import CallLostError

pytestmark = pytest.mark.integration

CALLS = 10_000


def square(x: int) -> int:
    return x * x


def test_every_result_comes_once_though_interpreters_are_killed(
    tmp_path: Path,
) -> None:
    rng = random.Random(7)
    with (
        node(tmp_path / "home") as home,
        client(lanes=2, cpu=0.5, retries=20) as caller,
    ):
        caller.submit(square, 1).result(WAIT_S)
        counts = [0] * CALLS
        futures: list[Future[int]] = []

        def count(place: int, _: Future[int]) -> None:
            counts[place] += 1

        for n in range(CALLS):
            future = caller.submit(square, n)
            future.add_done_callback(partial(count, n))
            futures.append(future)
            if n % 2_500 == 2_000:
                # Some have come up since the last one was killed: calls for which none
                # ever does are refused.
                futures[n - 1_000].result(4 * WAIT_S)
                eventually(lambda: bool(lane_pids(home.path)))
                os.kill(rng.choice(lane_pids(home.path)), signal.SIGKILL)

        found = [future.result(4 * WAIT_S) for future in futures]

        assert found == [n * n for n in range(CALLS)]
        assert counts == [1] * CALLS


def test_an_interpreter_that_must_go_loses_no_call(tmp_path: Path) -> None:
    with node(tmp_path / "home") as home, client(lanes=2, cpu=0.5, retries=0) as caller:
        caller.submit(square, 1).result(WAIT_S)
        futures = [caller.submit(square, n) for n in range(3_000)]
        slow = [caller.submit(_wait_a_little) for _ in range(50)]

        for pid in lane_pids(home.path):
            os.kill(pid, signal.SIGTERM)  # As when its lease is preempted.

        assert [f.result(WAIT_S) for f in futures] == [n * n for n in range(3_000)]
        assert {future.result(WAIT_S) for future in slow} == {"done"}


def test_whoever_waits_for_interpreters_that_nobody_offers_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with node(tmp_path / "home", "--no-functions") as home, client() as caller:
        future = caller.submit(square, 1)

        eventually(lambda: "no interpreter has come up" in caplog.text)

        assert not future.done()
        assert "python" in home.ok("explain", "last")


def test_calls_survive_a_node_that_is_killed_and_started_again(tmp_path: Path) -> None:
    with node(tmp_path / "home") as home, client(lanes=2, cpu=0.5) as caller:
        caller.submit(square, 1).result(WAIT_S)
        futures = [caller.submit(square, n) for n in range(3_000)]
        slow = caller.submit(_wait, 1.0, retries=0)
        eventually(slow.running)

        home.kill()
        home.up("--quiet", "--without", "p2p")

        assert [f.result(4 * WAIT_S) for f in futures] == [n * n for n in range(3_000)]
        with pytest.raises(CallLostError, match="only once"):
            slow.result(WAIT_S)
        assert caller.submit(square, 9).result(WAIT_S) == 81


def _wait(seconds: float) -> None:
    time.sleep(seconds * 60)


def test_calls_run_on_two_nodes_and_survive_the_loss_of_one(tmp_path: Path) -> None:
    with node(tmp_path / "one") as one:
        text = one.ok("invite", "--quiet").strip()
        with node(tmp_path / "two") as two:
            two.ok("down", "--quiet")
            two.ok("join", text)
            os.environ["SHOAL_HOME"] = str(tmp_path / "one")
            eventually(lambda: len(one.json("nodes")["nodes"]) == 2)
            with client(lanes=4, cpu=1) as caller:
                # All lanes are wanted: two fit on each node.
                futures = [caller.submit(_wait_a_little) for _ in range(400)]
                eventually(lambda: caller.lanes == 4)
                eventually(lambda: bool(lane_pids(two.path)))

                two.kill()

                homes = {future.result(4 * WAIT_S) for future in futures}
                assert homes == {"done"}


def _wait_a_little() -> str:
    time.sleep(0.02)
    return "done"
