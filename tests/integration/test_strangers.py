"""Where tasks cannot be confined, a machine runs those of its own owner only."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration


class Two(NamedTuple):
    """Who lends a machine, and a member of another owner who has none."""

    lender: CliHome
    stranger: CliHome


def reason_of(home: CliHome, job: str) -> str:
    """Return why a job does not run on the only worker there is."""
    found: list[str] = []

    def told() -> bool:
        task = home.json("explain", job)["tasks"][0]
        found[:] = [each["reason"] for each in task["rejected"]]
        return bool(found)

    eventually(told)
    return found[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with homes(tmp_path_factory.mktemp("two")) as make:
        lender, stranger = make("lender"), make("stranger")
        lender.env["PATH"] = str(Path(sys.executable).parent)  # without bubblewrap
        lender.up("--port", "0", "--listen", "127.0.0.1:0")
        invitation = lender.ok("invite", "-q", "--owner", "mallory").strip()
        stranger.ok("join", invitation, "--no-up", "--wait", "20s")
        stranger.up("--port", "0", "--no-worker")
        eventually(lambda: len(stranger.json("nodes")["nodes"]) == 2)
        yield Two(lender, stranger)


@pytest.mark.parametrize("recipe", [False, True], ids=["command", "recipe"])
def test_a_stranger_is_refused_where_nothing_confines_its_task(
    two: Two, recipe: bool, tmp_path: Path
) -> None:
    proof, spec = tmp_path / "ran", tmp_path / "echo.yaml"
    spec.write_text("recipe: echo\nparams: {said: hello}\n")
    work = [str(spec)] if recipe else ["--", "touch", str(proof)]

    job = two.stranger.ok("submit", "-q", *work).strip()
    why = reason_of(two.stranger, job)
    two.stranger.ok("cancel", job)

    assert why == (
        "this worker cannot confine tasks: bubblewrap is not installed; "
        "it serves its own owner only"
    )
    assert not proof.exists()


def test_its_own_owner_is_served_all_the_same(two: Two) -> None:
    assert two.lender("run", "-q", "--", "true").code == 0


def test_nodes_and_doctor_say_that_only_its_owner_is_served(two: Two) -> None:
    own = two.lender.json("nodes")["nodes"][0]
    seen = next(n for n in two.stranger.json("nodes")["nodes"] if n["worker"])
    doctor = two.lender("doctor")

    assert own["drivers"]
    assert own["terms"] == seen["terms"]
    assert "it serves its own owner only" in own["terms"]
    assert "confined: bubblewrap is not installed" in own["weaker"]
    assert seen["drivers"] == []
    assert "only your own run here: bubblewrap is not installed" in doctor.out
