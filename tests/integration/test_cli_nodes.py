"""Nodes by the command line: their starts, ends and accidents."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from tests.integration.calling import eventually
from tests.integration.cli_home import CliHome, homes

from shoal.api.client.client import Client
from shoal.api.shoal_pb2 import SubmitRequest
from shoal.cli.nodes import background
from shoal.errors import NotAllowedError, ShoalError

pytestmark = pytest.mark.integration

Make = Callable[[str], CliHome]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with homes(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    """One node for all tests that neither end it nor start it in another manner."""
    with homes(tmp_path_factory.mktemp("lasting")) as make:
        home = make("one")
        home.up()
        yield home


def test_two_nodes_on_one_machine_do_not_disturb_each_other(make: Make) -> None:
    one, two = make("one"), make("two")
    one.up()
    two.up()

    one.ok("run", "-q", "--name", "mine", "--", "true")

    assert one.info["api"] != two.info["api"]
    assert one.info["petname"] != two.info["petname"]
    assert [job["name"] for job in one.json("ps")["jobs"]] == ["mine"]
    assert two.json("ps")["jobs"] == []
    one.ok("down")
    assert two.ok("run", "-q", "--", "echo", "alive") == "alive\n"


def test_a_usual_port_that_is_taken_is_replaced_and_that_is_said(make: Make) -> None:
    nodes = [make("one"), make("two")]

    said = [node("up", "--background").err for node in nodes]

    ports = [node.info["api"].rpartition(":")[2] for node in nodes]
    assert len({*ports}) == 2
    for port, text in zip(ports, said, strict=True):
        # Another test may have had the usual port meanwhile.
        assert ("port 50051 is taken" in text) == (port != "50051")
        assert f"127.0.0.1:{port}" in text


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(make: Make) -> None:
    shoal = make("one")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        done = shoal("up", "--background", "--port", str(port))

    assert done.code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.err
    assert not (shoal.path / "node.json").exists()


def test_a_killed_node_comes_back_with_its_jobs(make: Make) -> None:
    shoal = make("one")
    shoal.up()
    finished = shoal.ok("submit", "-q", "--", "sh", "-c", "exit 3").strip()
    shoal("wait", finished)
    waiting = shoal.ok("submit", "-q", "--gpus", "4", "--", "true").strip()

    shoal.kill()
    dead = shoal("ps")
    again = shoal("up", "--background")

    assert dead.code == 105
    assert "died without a word" in dead.err
    assert again.code == 0
    jobs = {job["id"]: job for job in shoal.json("ps")["jobs"]}
    assert jobs[finished]["state"] == "failed"
    assert jobs[finished]["exit_code"] == 3
    assert jobs[waiting]["state"] == "waiting"
    assert shoal("wait", finished).code == 3


def test_a_job_that_ran_when_its_node_was_killed_runs_again(make: Make) -> None:
    shoal = make("one")
    shoal.up()
    script = "echo begun; sleep 3; echo done"
    running = shoal.start("run", "--", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"

    shoal.kill()
    _, err = running.communicate(timeout=120)
    shoal.up()

    assert running.returncode == 105, err
    job = shoal.json("show", "last")["job"]["id"]
    assert f"next:  job {job} is not lost: `shoal up` resumes it" in err
    assert shoal("wait", "last").code == 0
    assert shoal.ok("logs", "last") == "begun\ndone\n"


def test_up_twice_says_who_runs_already(lasting: CliHome) -> None:
    second = lasting("up")

    assert second.code == 1
    assert f"the node {lasting.info['petname']} is running already" in second.err
    assert lasting("up", "--background").code == 0


def test_a_start_that_comes_after_another_tells_of_the_node_that_is_there(
    lasting: CliHome,
) -> None:
    reading, writing = os.pipe()
    second = [*background.UP, "--ready-fd", str(writing)]

    subprocess.run(second, env=lasting.env, pass_fds=(writing,), check=False)
    os.close(writing)

    with os.fdopen(reading, "rb") as pipe:
        assert json.load(pipe)["in_use"] == "yes"  # So that commands use that node.


def test_a_second_start_tells_of_the_node_and_which_flags_did_not_reach_it(
    lasting: CliHome,
) -> None:
    first = lasting.info

    again = lasting.json("up", "--background")
    flags = ("--listen", "127.0.0.1:0", "--policy", "simple")
    other = lasting("up", "--background", *flags)

    assert again["pid"] == first["pid"] == lasting.info["pid"]
    assert again["node"]["id"] == first["node"]
    assert other.code == 0
    assert "--listen, --policy had no effect" in other.err
    assert "next: shoal down · this command again" in other.err
    assert "had no effect" not in lasting("up", "--background").err


def test_down_ends_tasks_and_takes_its_files_along(make: Make) -> None:
    shoal = make("one")
    shoal.ok("up", "--background")
    pid = shoal.info["pid"]
    shoal.ok("submit", "-q", "--", "sleep", "100")

    ended = shoal("down")

    assert ended.code == 0
    assert "1 job has not finished" in ended.err
    assert not (shoal.path / "node.json").exists()
    assert not (shoal.path / "node.sock").exists()
    shoal.wait_for_end(pid)
    assert shoal("down").code == 0


def test_a_node_in_the_foreground_ends_on_a_signal(make: Make) -> None:
    shoal = make("one")
    node = shoal.start("up", "--json")
    assert node.stdout is not None
    document = json.loads(node.stdout.readline())

    node.terminate()
    _, err = node.communicate(timeout=120)

    assert document["pid"] == node.pid
    assert node.returncode == 0, err
    assert not (shoal.path / "node.json").exists()


def test_declared_gpus_are_lent(make: Make) -> None:
    shoal = make("one")
    flags = ("--gpus", "0,1", "--models", "RTX3090,RTX3090")
    shoal.up(*flags, "--memories", "24576,24576")

    [node] = shoal.json("nodes")["nodes"]

    assert [device["model"] for device in node["devices"]] == ["RTX3090"] * 2
    assert "RTX3090:24GB:2" in shoal.ok("nodes")
    ask = ("--gpus", "2", "--memory", "8192")
    told = shoal.ok("run", "-q", *ask, "--", "sh", "-c", "echo $GPUS_PER_NODE")
    assert told == "2\n"


def test_a_home_may_lie_deep(make: Make) -> None:
    shoal = make("/".join(["a-rather-long-name"] * 8))

    assert shoal.ok("run", "-q", "--", "echo", "deep") == "deep\n"


def test_calls_over_the_network_need_the_token(lasting: CliHome, make: Make) -> None:
    address = lasting.info["api"]
    lasting.ok("ps", "--node", address)
    stranger = make("two")
    stranger.ok("ps", "--node", address)  # Its user may read the token.
    token = (lasting.path / "api.token").read_text().strip()
    stranger.env["SHOAL_TOKEN"] = f"stale.{token.partition('.')[2]}"

    refused = stranger("ps", "--node", address)

    assert refused.code == 106
    assert "does not know this client" in refused.err
    with Client(address, name="it") as client, pytest.raises(NotAllowedError):
        client.info()


def test_a_repeated_submission_makes_one_job(lasting: CliHome) -> None:
    spec = '{"command": ["true"]}'
    before = lasting.json("ps", "--all")["total"]

    with Client(f"unix:{lasting.info['socket']}", name="it") as client:
        for _ in range(3):
            client.submit(SubmitRequest(job_id="same", json=spec))
        other = SubmitRequest(job_id="same", json='{"command": ["false"]}')
        with pytest.raises(ShoalError, match="there is a job same already"):
            client.submit(other)

    assert lasting.json("ps", "--all")["total"] == before + 1


def test_an_unknown_method_is_refused_in_words(lasting: CliHome) -> None:
    with grpc.insecure_channel(f"unix:{lasting.info['socket']}") as channel:
        call = channel.unary_unary("/shoal.v1.Shoal/Swim", bytes, bytes)
        with pytest.raises(grpc.RpcError, match="Method not found"):
            call(b"", timeout=5)


def test_several_first_commands_at_once_share_one_node(make: Make) -> None:
    shoal = make("one")

    running = [shoal.start("run", "--", "echo", f"hi {n}") for n in range(3)]
    done = [each.communicate(timeout=120) for each in running]

    said = "\n".join(err for _, err in done)
    assert [out for out, _ in done] == [f"hi {n}\n" for n in range(3)], said
    assert len(shoal.json("ps")["jobs"]) == 3


def test_a_node_that_lends_nothing_takes_jobs_and_says_what_they_wait_for(
    make: Make,
) -> None:
    shoal = make("one")
    shoal.up("--no-worker")
    job = shoal.ok("submit", "-q", "--", "true").strip()

    assert shoal.json("show", job)["job"]["state"] == "waiting"
    assert "lends nothing" in shoal.ok("nodes")

    [told] = shoal.json("explain", job)["tasks"]
    planned = shoal("plan", "--", "true")

    assert shoal.json("show", job)["job"]["reason"] == "no worker is known here"
    assert told["why"] == ["no worker is known here"]
    assert "shoal invite" in told["helps"][0]
    assert planned.code == 104
    assert "no worker is known here" in planned.out


@pytest.fixture
def hang_up() -> Iterator[None]:
    """Let children hear of it: under nohup they would ignore it, as they should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up")
def test_a_node_whose_terminal_goes_away_ends_in_good_order(make: Make) -> None:
    shoal = make("one")
    node = shoal.start("up", "--port", "0")
    assert node.stderr is not None
    assert any("Ctrl-C ends" in line for line in node.stderr)
    shoal.ok("submit", "-q", "--", "sleep", "100")
    eventually(lambda: shoal.json("ps")["jobs"][0]["state"] == "running")

    node.send_signal(signal.SIGHUP)
    _, err = node.communicate(timeout=120)

    assert node.returncode == 0
    assert "waiting until 1 task ends; Ctrl-C again waits no longer" in err
    assert "the node has stopped" in err
    assert not (shoal.path / "node.json").exists()
