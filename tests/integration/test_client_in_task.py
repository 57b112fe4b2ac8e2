"""A client inside a task: the shoal that runs it, as far as its own jobs go."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.calling import eventually, node
from tests.integration.cli_home import CliHome

pytestmark = pytest.mark.integration

SMALL = '{"cpu": 0.1}'
COMMON = f"""
import json, sys, time
import shoal
from shoal.errors import ShoalError
client = shoal.Client(cpu=0.1)

def run(*argv, **more):
    detached = more.pop("detached", False)
    spec = {{"command": list(argv), "resources": {SMALL}, **more}}
    return client.submit(spec, detached=detached)

def refused(call, *args, **more):
    try:
        call(*args, **more)
    except ShoalError as error:
        return str(error)
    return ""
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with node(tmp_path_factory.mktemp("home")) as made:
        yield made


def submitted(home: CliHome, program: str, *args: str) -> str:
    """Submit a program that has a client; return the id of its job."""
    words = ("--cpus", "0.1", *args, "--", "python", "-c", COMMON + program)
    return home.ok("submit", "-q", *words).strip()


def told(home: CliHome, program: str, *args: str) -> dict[str, Any]:
    """Run a program that has a client; return the JSON that it prints."""
    job = submitted(home, program, *args)
    home("wait", job)
    said = home("logs", job)
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.parametrize("network", [(), ("--network",)], ids=["confined", "network"])
def test_a_task_calls_functions_and_runs_jobs_of_its_own(
    home: CliHome, network: tuple[str, ...]
) -> None:
    said = told(
        home,
        """
job = run("sh", "-c", "echo from a child; echo 7 > left", outputs=["left"])
found = {
    "power": client.submit(pow, 2, 10).result(60),
    "exit": job.result(60),
    "logs": b"".join(job.logs()).decode(),
    "pulled": [(path / "left").read_text() for path in job.pull("here")],
    "large": client.submit(len, client.scatter(b"x" * 300_000)).result(60),
    "ids": [each.id for each in client.jobs()],
    "job": job.id,
    "failed": run("sh", "-c", "exit 3").wait(60),
}
print(json.dumps(found))
""",
        *network,
    )

    assert (said["power"], said["exit"], said["failed"]) == (1_024, 0, "failed")
    assert (said["logs"], said["pulled"]) == ("from a child\n", ["7\n"])
    assert said["large"] == 300_000
    assert said["job"] in said["ids"]
    shown = home.json("show", said["job"])["job"]
    assert shown["parent"].endswith(".main.0")
    assert (
        shown["owner"]
        == home.json("show", shown["parent"].split(".")[0])["job"]["owner"]
    )


def test_the_jobs_of_a_task_end_with_it_unless_they_are_detached(home: CliHome) -> None:
    said = told(
        home,
        """
ids = [run("sleep", "600").id, run("sleep", "600", detached=True).id]
print(json.dumps({"ids": ids}))
""",
    )
    ends_with_it, goes_on = said["ids"]

    eventually(lambda: state(home, ends_with_it) == "cancelled")
    assert "its parent" in home.json("show", ends_with_it)["job"]["reason"]
    assert state(home, goes_on) in ("waiting", "running")
    home.ok("cancel", goes_on)


def test_a_cancelled_task_takes_children_and_grandchildren_along(
    home: CliHome,
) -> None:
    inner = COMMON + 'job = run("sleep", "600")\nprint(job.id, flush=True)\njob.wait()'
    job = submitted(
        home,
        f"""
job = run("python", "-c", {inner!r})
print(job.id, flush=True)
job.wait()
""",
    )
    eventually(lambda: bool(home("logs", job).out))
    child = home("logs", job).out.strip()
    eventually(lambda: bool(home("logs", child).out))
    grandchild = home("logs", child).out.strip()

    home.ok("cancel", job)

    for each in (child, grandchild):
        eventually(lambda each=each: state(home, each) == "cancelled")  # type: ignore[misc]


def state(home: CliHome, job: str) -> str:
    return str(home.json("show", job)["job"]["state"])


def test_a_task_gets_no_more_than_it_has_and_sees_no_other_jobs(home: CliHome) -> None:
    other = home.ok("submit", "-q", "--cpus", "0.1", "--", "true").strip()
    home("secret", "set", "TOKEN", typed="hunter2hunter2")

    said = told(
        home,
        f"""
from shoal.api.client import client as api
from shoal.api.shoal_pb2 import SubmitRequest

found = {{
    "network": refused(run, "true", network=True),
    "secret": refused(run, "true", secrets=["TOKEN"]),
    "end": refused(run, "true", on_end={{"webhook": "http://127.0.0.1:9/"}}),
    "schedule": refused(run, "true", schedule="0 3 * * *"),
    "other": refused(client.job, {other!r}),
    "down": refused(api.connect().shutdown, 0.0),
    "set": refused(api.connect().set_secret, "A", "B"),
}}
print(json.dumps(found))
""",
    )

    assert "wants a network" in said["network"]
    assert "wants the secret 'TOKEN'" in said["secret"]
    assert "on_end" in said["end"]
    assert "schedule" in said["schedule"]
    assert said["other"]
    assert "a task may not call Shutdown" in said["down"]
    assert "a task may not call SetSecret" in said["set"]
    assert home.json("ps")["jobs"], "the node is still up"


def test_a_child_that_only_fits_into_its_parents_room_is_refused(home: CliHome) -> None:
    cpus = home.json("nodes")["nodes"][0]["total"]["cpu_milli"] // 1_000

    said = told(
        home,
        f"""
spec = {{"command": ["true"], "resources": {{"cpu": {cpus}}}}}
call = client.submit(pow, 2, 10, cpu={cpus})
found = {{"job": refused(client.submit, spec), "call": refused(call.result, 60)}}
found["later"] = client.submit(spec, detached=True).id
print(json.dumps(found))
""",
    )

    for each in (said["job"], said["call"]):
        assert "keeps the room that it needs until it ends" in each
    assert home.json("wait", said["later"])["jobs"][0]["state"] == "done"


def test_commands_in_a_task_are_those_of_its_shoal(home: CliHome) -> None:
    script = "shoal run -q --cpus 0.1 -- echo inside; shoal ps -q; shoal invite"

    words = ("--cpus", "0.1", "--", "sh", "-c", script)
    job = home.ok("submit", "-q", *words).strip()
    home("wait", job)

    said = home("logs", job)
    assert said.out.splitlines()[0] == "inside"
    assert "a task may not call Invite" in said.err


def test_a_task_starts_no_node_unless_it_gives_it_a_home(home: CliHome) -> None:
    refused = home("run", "-q", "--cpus", "0.1", "--", "shoal", "up", "--background")

    assert refused.code == 2
    assert "error: this is a task of a job: it starts no node" in refused.err
    assert "SHOAL_HOME=$PWD/node shoal up" in refused.err

    own = "SHOAL_HOME=$PWD/node; export SHOAL_HOME; shoal up --background --port 0"
    started = home(
        "run", "-q", "--cpus", "0.1", "--", "sh", "-c", f"{own} && shoal down"
    )

    assert started.code == 0, started
