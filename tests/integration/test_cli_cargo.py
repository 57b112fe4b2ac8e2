"""Folders, outputs and secrets, by the commands that a user types."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("cargo")) as make:
        made = make("home")
        made.ok("up", "--background", "--port", "0")
        yield made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "code.txt").write_text("v1\n")
    (folder / ".env").write_text("PASSWORD=x\n")
    (folder / ".gitignore").write_text(".env\n")
    return folder


def test_a_folder_goes_out_and_what_was_made_comes_back(
    home: CliHome, work: Path, tmp_path: Path
) -> None:
    script = "ls -A; mkdir out; cat code.txt > out/copy"
    flags = ("--workdir", str(work), "--output", "out/", "--no-pull")
    first = home("run", *flags, "--", "sh", "-c", script)
    second = home("run", *flags, "--", "sh", "-c", script)
    pulled = home.json("pull", "last", "--to", str(tmp_path / "got"))

    assert first.code == 0, first
    assert first.out.split() == [".gitignore", "code.txt"]
    assert "sent 2 of 2 files" in first.err
    assert "sent 0 of 2 files, 0 bytes" in second.err
    assert pulled["outputs"][0]["files"] == 1
    assert (tmp_path / "got" / "copy").read_text() == "v1\n"


def test_a_secret_is_seen_by_the_task_and_by_nobody_else(home: CliHome) -> None:
    kept = home("secret", "set", "TOKEN", typed="hunter2hunter2\n")
    job = home("run", "--secret", "TOKEN", "--", "sh", "-c", "echo $TOKEN ${#TOKEN}")
    shown = home.json("show", "last")

    assert kept.code == 0, kept
    files = [path.read_bytes() for path in (home.path / "tasks").rglob("*.std*")]
    assert any(b"**************" in data for data in files)
    assert not any(b"hunter2hunter2" in data for data in files)
    assert home.json("secret", "list")["secrets"] == ["TOKEN"]
    assert job.out == "*" * 14 + " 14\n"
    assert "hunter2" not in str(shown)
    home.ok("secret", "rm", "TOKEN")
    gone = home("run", "--secret", "TOKEN", "--", "true")
    assert gone.code == 2
    assert "set it first: shoal secret set TOKEN" in gone.err


def test_mistakes_are_answered_with_what_to_do(home: CliHome, tmp_path: Path) -> None:
    nowhere = home("run", "--workdir", str(tmp_path / "no"), "--", "true")
    nothing = home("run", "--", "true")
    empty = home("pull", "last")
    bad = home("secret", "set", "1BAD", typed="x")
    unknown = home("secret", "rm", "NEVER")

    assert (nowhere.code, "is no folder" in nowhere.err) == (2, True)
    assert nothing.code == 0
    assert (empty.code, "there are no outputs of job" in empty.err) == (102, True)
    assert (bad.code, "write it like HF_TOKEN" in bad.err) == (2, True)
    assert unknown.code == 102


def test_a_recipe_is_a_program_that_comes_with_shoal(home: CliHome) -> None:
    unknown = home("run", "--recipe", "no-such-recipe")

    assert unknown.code == 2
    assert "there is no recipe 'no-such-recipe'" in unknown.err
