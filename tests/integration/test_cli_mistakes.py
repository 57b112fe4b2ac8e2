"""Whatever goes wrong with a node is told as what, why and what next, with a code.

`MISTAKES` has rows for every command; one that is new and has none fails a test. What
goes wrong without a node is in tests/unit/cli/test_mistakes.py.
"""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import CliHome, Done, homes, is_connected
from tests.integration.live_shoal import eventually
from tests.unit.cli.test_mistakes import commands

from shoal import cli
from shoal.api.client.client import connect
from shoal.api.shoal_pb2 import SubmitRequest
from shoal.runtime.home import Home

pytestmark = pytest.mark.integration

UNKNOWN = "no job 'nope'"
TWICE = "could be 2 jobs"
NO_ALLOCATION = "there is no allocation 'nope'"
NOWHERE = "is not a host and a port"

MISTAKES: dict[str, list[tuple[str, int, str]]] = {
    # By command: what follows it, the exit code, and words of the message.
    "accept": [("--flagg", 2, "No such option")],
    "alloc add": [
        ("lsf --max 2", 2, "'lsf' is no engine"),
        ("slurm --max 0", 2, "x>=1"),
        ("slurm --time-limit soon", 2, "write it like 90s"),
    ],
    "alloc dry-run": [("lsf", 2, "'lsf' is no engine")],
    "alloc list": [("much", 2, "unexpected extra argument")],
    "alloc log": [("nope", 102, NO_ALLOCATION)],
    "alloc pause": [("nope", 102, NO_ALLOCATION)],
    "alloc remove": [("nope", 102, NO_ALLOCATION)],
    "alloc resume": [("nope", 102, NO_ALLOCATION)],
    "audit": [("--since soon", 2, "write it like"), ("-n -1", 2, "x>=0")],
    "cancel": [
        ("nope", 102, UNKNOWN),
        ("twin", 2, TWICE),
        ("7-9", 102, "there are no jobs 7 to 9"),
        ("3-1", 102, "there are no jobs 3 to 1"),
    ],
    "completion": [("tcsh", 2, "'bash', 'zsh', 'fish'")],
    "doctor": [("much", 2, "unexpected extra argument")],
    "down": [("--grace soon", 2, "write it like 90s")],
    "drain": [("nope", 102, "no node 'nope'")],
    "events": [("-n many", 2, "not a valid integer")],
    "exec": [("nope -- true", 102, UNKNOWN)],
    "explain": [
        ("nope", 102, UNKNOWN),
        ("twin", 2, TWICE),
        ("all", 2, "can mean several"),
        ("twin1 --task 9", 102, "no task '9'"),
    ],
    "forward": [("nope 80", 102, UNKNOWN)],
    "init": [("other", 1, "belongs to the shoal")],
    "invite": [
        ("--uses 0", 2, "range"),
        ("--uses 5000", 2, "at most 1,000"),
        ("--ttl 99d", 2, "at most 2,592,000"),
        ("--role king", 2, "'worker'"),
    ],
    "join": [("shoal1-AAAAAAA", 1, "is running")],
    "key lock": [("--passphrase-file nowhere", 2, "nowhere")],
    "key unlock": [("--passphrase-file nowhere", 2, "nowhere")],
    "leave": [("much", 2, "unexpected extra argument")],
    "logs": [
        ("nope", 102, UNKNOWN),
        ("twin", 2, TWICE),
        ("1,2", 2, "can mean several"),
        ("twin1 --task x", 102, "no task 'x'"),
    ],
    "metrics": [
        ("nope", 102, UNKNOWN),
        ("twin1 --csv --parquet f", 2, "two forms at once"),
        ("twin1 --csv", 102, "no metrics"),
    ],
    "monitor": [("-1 --worker nope", 102, "there is no node 'nope'")],
    "nodes": [("--node nowhere", 2, NOWHERE)],
    "notebook": [("nope", 102, UNKNOWN)],
    "ping": [("nope", 102, "no node 'nope'"), ("-c 0", 2, "x>=1")],
    "plan": [
        ("nowhere.yaml", 2, "No such file"),
        ("--driver proces -- true", 2, "did you mean 'process'?"),
        ("--recipe dilocco", 2, "did you mean 'diloco'?"),
        ("--policy balancd -- true", 2, "did you mean 'balanced'?"),
    ],
    "policy list": [("much", 2, "unexpected extra argument")],
    "policy test": [("nope", 2, "no policy 'nope'")],
    "ps": [
        ("much", 2, "unexpected extra argument"),
        ("--node nowhere", 102, "there is no node 'nowhere'"),
        ("--node nowhere:x", 2, NOWHERE),
    ],
    "pull": [
        ("nope", 102, UNKNOWN),
        ("twin", 2, TWICE),
        ("twin1", 102, "job twin1 has no outputs"),
        ("left --to /dev/null/x", 2, "/dev/null/x"),
    ],
    "renew": [("--root-key nowhere", 2, "is running")],
    "retry": [("nope", 102, UNKNOWN), ("twin", 2, TWICE), ("long", 1, "has not ended")],
    "revoke": [
        ("nope", 102, "there is no node 'nope'"),
        ("12D3KooWnope", 2, "'12D3KooWnope' is not a node id"),
    ],
    "rm": [("nope", 102, UNKNOWN), ("long", 1, "has not ended")],
    "run": [
        ("--secret NOPE -- true", 2, "no secret 'NOPE'"),
        ("--driver proces -- true", 2, "did you mean 'process'?"),
        ("--recipe dilocco", 2, "did you mean 'diloco'?"),
        ("--workdir nowhere -- true", 2, "nowhere"),
        ("--workdir /etc/passwd -- true", 2, "/etc/passwd is no folder"),
    ],
    "schema": [("much", 2, "unexpected extra argument")],
    "secret list": [("much", 2, "unexpected extra argument")],
    "secret rm": [("NOPE", 102, "no secret 'NOPE'")],
    "secret set": [
        ("1X", 2, "is not the name of a secret"),
        ("X", 2, "cannot be a secret"),
        ("X --from-file /dev/null/x", 2, "cannot read /dev/null/x"),
    ],
    "server": [("", 1, "is running already")],
    "set": [("port many", 2, "a whole number"), ("prot 1", 2, "did you mean 'port'?")],
    "show": [
        ("nope", 102, UNKNOWN),
        ("twin", 2, TWICE),
        ("77", 102, "there is no job 77"),
        ("all", 2, "can mean several"),
    ],
    "sim goodput": [("nowhere.csv", 2, "no such file"), ("--jobs x", 2, "integer")],
    "sim reproduce": [("--traces nowhere", 2, "no such file")],
    "sim run": [("nowhere.yaml", 2, "No such file"), ("--seed x", 2, "valid integer")],
    "sim sweep": [
        ("nowhere.yaml", 2, "No such file"),
        ("--vary seed", 2, "does not say what to vary"),
    ],
    "sim traces": [("nowhere.csv", 2, "no such file"), (".", 2, "Is a directory")],
    "slurm ended": [("x", 2, "not a valid integer")],
    "slurm install": [("", 2, "Missing argument 'DIR'")],
    "slurm sbatch": [
        ("", 2, "does not say what runs it"),
        ("nope.sh", 2, "cannot read nope.sh"),
        ("--gpuz 3 x.sh", 2, "did you mean '--gpus'?"),
    ],
    "slurm scancel": [
        ("", 2, "no job was named"),
        ("999", 102, "there is no batch job 999"),
    ],
    "slurm sinfo": [("--bogus", 2, "--bogus is not supported")],
    "slurm squeue": [
        ("-t SOON", 2, "no state of a job"),
        ("-j x", 2, "'x' is no job"),
        ("--bogus", 2, "--bogus is not supported"),
    ],
    "submit": [
        ("--policy balancd -- true", 2, "did you mean 'balanced'?"),
        ("--driver proces -- true", 2, "did you mean 'process'?"),
        ("--recipe dilocco", 2, "did you mean 'diloco'?"),
        ("--workdir nowhere -- true", 2, "nowhere"),
        (".", 2, "Is a directory"),
    ],
    "token rotate": [("much", 2, "unexpected extra argument")],
    "token show": [("much", 2, "unexpected extra argument")],
    "top": [("-1 --worker nope", 102, "there is no node 'nope'")],
    "up": [("--listen nowhere", 1, "is running already")],
    "usage": [("--by moon", 2, "'week'")],
    "wait": [("nope", 102, UNKNOWN), ("twin", 2, TWICE), ("x --timeout y", 2, "90s")],
    "web": [("nope", 102, UNKNOWN)],
    "worker": [("--scheduler nowhere", 2, NOWHERE)],
}

SPECS = {
    "typo.yaml": ("command: 'true'\nnodez: 2\n", "nodez"),
    "driver.yaml": ("command: 'true'\ndriver: proces\n", "did you mean 'process'?"),
    "recipe.yaml": ("recipe: dilocco\n", "did you mean 'diloco'?"),
    "policy.yaml": (
        "command: 'true'\nplacement: {policy: balancd}\n",
        "did you mean 'balanced'?",
    ),
    "steps.yaml": ("steps: {a: {recipe: ecko}}\n", "did you mean 'echo'?"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("mistakes")) as make:
        home = make("one")
        home.up("--port", "0", "--no-sandbox")
        jobs: dict[str, dict[str, Any]] = {
            "twin1": {"command": ["true"]},
            "twin2": {"command": ["true"]},
            "long": {"command": ["sleep", "600"]},
            "left": {
                "command": ["sh", "-c", "mkdir out; echo 1 > out/x"],
                "outputs": ["out/"],
            },
        }
        with connect(home=Home(home.path)) as client:
            for name, spec in jobs.items():
                client.submit(SubmitRequest(job_id=name, json=json.dumps(spec)))
        home.ok("wait", "-q", "twin1", "twin2", "left")
        yield home


def check(done: Done, code: int, words: str) -> None:
    assert done.code == code, done
    assert done.out == ""
    assert done.err.startswith("error: "), done
    assert "next:  " in done.err
    assert words in done.err
    assert "Traceback" not in done.err


def test_every_command_has_rows() -> None:
    assert sorted(MISTAKES) == sorted(name for name, _ in commands(cli.shoal))


@pytest.mark.parametrize(
    ("command", "rest", "code", "words"),
    [(command, *row) for command, rows in MISTAKES.items() for row in rows],
)
def test_a_mistake_is_explained(
    home: CliHome, command: str, rest: str, code: int, words: str
) -> None:
    check(home(*command.split(), *rest.split()), code, words)


@pytest.mark.parametrize("command", ["run", "submit", "plan"])
@pytest.mark.parametrize("name", SPECS)
def test_a_spec_with_a_typo_names_the_place(
    home: CliHome, command: str, name: str, tmp_path: Path
) -> None:
    text, words = SPECS[name]
    (tmp_path / name).write_text(text)

    check(home(command, str(tmp_path / name)), 2, words)


PRINTING = (
    *("ps", "nodes", "show twin1", "events", "schema", "set", "policy list"),
    *("doctor", "top -1", "completion bash", "--help", "ps --help", "--version"),
    *("invite", "web --no-open", "explain long", "sim run --jobs poisson:1 -q"),
)


@pytest.mark.parametrize("line", PRINTING)
def test_a_pipe_that_nobody_reads_ends_a_command_in_silence(
    home: CliHome, line: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code, told = home.written_to(writing, *line.split())
    os.close(writing)

    assert code == 1
    assert "Traceback" not in told
    assert "error" not in told


@pytest.mark.parametrize("line", PRINTING)
def test_a_disk_that_is_full_is_told(home: CliHome, line: str) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - It is no file of ours.
        code, told = home.written_to(full.fileno(), *line.split())

    assert code == 1
    assert "why:   No space left on device" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "line", ["wait long", "logs -f long", "events -f", "top --refresh 0.2"]
)
def test_ctrl_c_ends_what_would_go_on_without_a_word_of_python(
    home: CliHome, line: str
) -> None:
    with home.start(*line.split()) as going:
        eventually(lambda: is_connected(going.pid))
        going.send_signal(signal.SIGINT)
        assert going.stderr is not None
        said = going.stderr.read()

    assert going.returncode == 130  # As a shell tells it, and not as a failure.
    assert said.strip() == ""


def test_colours_are_for_terminals_that_want_them(home: CliHome) -> None:
    home.env["NO_COLOR"] = "1"
    try:
        done = [home(*line.split()) for line in ("ps", "nodes", "top -1", "doctor")]
    finally:
        del home.env["NO_COLOR"]

    assert not any("\x1b" in each.out + each.err for each in done)
    assert "\x1b" not in home("ps").out


def test_a_secret_that_is_typed_into_no_terminal_is_read_from_there(
    home: CliHome,
) -> None:
    done = home("secret", "set", "TYPED", typed="value\n")

    assert done.code == 0, done


def test_who_shows_a_wrong_token_is_told(home: CliHome, tmp_path: Path) -> None:
    stranger = CliHome(tmp_path / "stranger")
    stranger.env["SHOAL_TOKEN"] = "wrong"

    wrong = stranger("ps", "--node", home.info["api"])

    check(wrong, 106, "SHOAL_TOKEN")


def test_down_without_a_node_is_no_error(tmp_path: Path) -> None:
    done = CliHome(tmp_path / "none")("down")

    assert done == (0, "", "no node is running\n")


def test_doctor_says_what_is_wrong_with_a_home(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    done = CliHome(file / "home")("doctor")

    assert done.code == 1
    assert "bad   home" in done.out
    assert "fix: set SHOAL_HOME" in done.out


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ("--policy nope", 2, "nope"),
        ("--order nope", 2, "no queue order 'nope'"),
        ("--gpus 0,1 --models A", 2, "--models has 1 entries"),
        ("--listen nowhere", 2, NOWHERE),
        ("--api nowhere", 2, NOWHERE),
        ("--port TAKEN", 1, "TAKEN"),
        ("--listen 127.0.0.1:TAKEN", 1, "TAKEN"),
        ("--metrics 127.0.0.1:TAKEN", 1, "TAKEN"),
        ("--api 127.0.0.1:TAKEN", 1, "TAKEN"),
        # In the background it is told all the same.
        ("--background --order nope", 2, "no queue order 'nope'"),
        ("--background --api 127.0.0.1:TAKEN", 1, "TAKEN"),
    ],
)
def test_a_node_tells_why_it_did_not_start(
    flags: str, code: int, words: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        args = flags.replace("TAKEN", port).split()

        done = CliHome(tmp_path / "one")("up", *args)

    check(done, code, words.replace("TAKEN", port))


@pytest.mark.parametrize("name", ["node.key", "journal.db", "membership.json"])
def test_a_folder_in_the_way_of_a_file_is_explained(name: str, tmp_path: Path) -> None:
    home = CliHome(tmp_path / "one")
    (home.path / name).mkdir(parents=True)

    done = home("up", "--port", "0")

    assert done.code in (1, 2), done
    assert name in done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
