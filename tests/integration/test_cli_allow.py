"""`shoal up --allow`: an owner says what kind of work may run on the machine."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

from shoal.drivers.container_engines import find_engine

pytestmark = pytest.mark.integration

Make = Callable[[str], CliHome]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with homes(tmp_path) as make:
        yield make


def drivers_of(home: CliHome) -> list[str]:
    drivers: list[str] = home.json("nodes")["nodes"][0]["drivers"]
    return drivers


def reason_of(home: CliHome, job: str) -> str:
    """Return why a job does not run on the only node there is."""
    until = time.monotonic() + 20.0
    while not (rejected := home.json("explain", job)["tasks"][0]["rejected"]):
        assert time.monotonic() < until
        time.sleep(0.1)
    reason: str = rejected[0]["reason"]
    return reason


def echo(folder: Path, *lines: str) -> str:
    spec = folder / "echo.yaml"
    spec.write_text("\n".join(["recipe: echo", "params: {said: hello}", *lines]))
    return str(spec)


def test_who_lends_to_recipes_runs_recipes_and_nothing_else(
    make: Make, tmp_path: Path
) -> None:
    home = make("careful")
    said = home("up", "--background", "--port", "0", "--allow", "recipe")

    ran = home("run", echo(tmp_path))
    waiting = [
        home.ok("submit", "-q", "--", "true").strip(),
        home.ok("submit", "-q", echo(tmp_path, "env: {PYTHONPATH: /tmp}")).strip(),
    ]
    reasons = [reason_of(home, job) for job in waiting]
    planned = home("plan", "--", "true")

    assert "only recipes may run here" in said.err
    assert drivers_of(home) == ["recipe"]
    assert ran.code == 0, ran.err
    assert "hello" in ran.out
    assert reasons == ["does not offer the driver process"] * 2
    assert planned.code == 104


def test_who_says_nothing_lends_to_commands_functions_and_recipes(
    make: Make, tmp_path: Path
) -> None:
    home = make("usual")
    said = home("up", "--background", "--port", "0")

    assert "may run here" not in said.err
    assert {"process", "python", "recipe"} <= {*drivers_of(home)}
    assert home("run", "-q", echo(tmp_path)).code == 0
    assert home("run", "-q", "--", "true").code == 0


def test_what_is_set_counts_until_a_flag_says_otherwise(make: Make) -> None:
    home = make("set")
    home.ok("set", "allow", "recipe,command")

    home.up("--port", "0", "--no-functions")
    of_setting = drivers_of(home)
    home.ok("down")
    home.ok("up", "--background", "--port", "0", "--allow", "recipe")

    assert of_setting == ["recipe", "process"]
    assert drivers_of(home) == ["recipe"]


@pytest.mark.parametrize(
    "line",
    [
        "up --allow recipe,functions",
        "up --background --allow recipe,functions",
        "set allow functions",
    ],
)
def test_a_word_that_nobody_knows_is_explained(make: Make, line: str) -> None:
    done = make("typo")(*line.split())

    assert done.code == 2
    assert "'functions' is not a kind of task" in done.err
    assert "why:   there are command, image, recipe" in done.err
    assert "next:  write it like --allow recipe,command" in done.err


def test_a_folder_does_not_decide_what_may_run_here(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shoal.toml").write_text('allow = "command"\n')
    monkeypatch.chdir(tmp_path)

    done = make("guest")("up")

    assert done.code == 2
    assert "allow cannot be set for a project" in done.err


def test_who_allows_only_what_cannot_run_here_is_told(make: Make) -> None:
    words = ("--port", "0", "--allow", "image", "--no-containers")

    done = make("images")("up", "--background", *words)

    assert done.code == 2
    assert "there is nothing that others may run here" in done.err
    assert "why:   only images are allowed, and containers are not" in done.err


def test_who_allows_images_runs_those_alone_if_there_is_an_engine(make: Make) -> None:
    home, engine = make("images"), asyncio.run(find_engine(3.0))

    done = home("up", "--background", "--port", "0", "--allow", "image")

    if isinstance(engine, str):
        assert done.code == 2
        assert "no docker or podman answers" in done.err
    else:
        assert "only images may run here" in done.err
        assert drivers_of(home) == ["container"]
