"""Folders, outputs and secrets, by the commands that a user types."""

import json
import os
import pty
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("artifacts")) as make:
        made = make("home")
        made.up("--port", "0")
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


def test_a_folder_that_was_pulled_is_named_once_to_programs_and_to_people(
    home: CliHome, tmp_path: Path
) -> None:
    home.ok("run", "-q", "--no-pull", "--output", "a", "--", "sh", "-c", "echo 1 > a")
    to = str(tmp_path / "got")
    ours, theirs = pty.openpty()

    read = home("pull", "--to", to)
    seen = home.written_to(theirs, "pull", "--to", to)
    os.write(theirs, b".")  # What comes after all that was written.

    assert read.out == f"{to}\n"
    assert os.read(ours, 65_536) == b"."
    assert (seen[0], seen[1].count(to)) == (0, 1)
    os.close(ours)
    os.close(theirs)


def test_where_the_code_of_a_job_is_cached_is_said(home: CliHome, work: Path) -> None:
    flags = ("--workdir", str(work))
    home.ok("run", "-q", *flags, "--", "true")

    offers = home("submit", "--offers", "--json", *flags, "--", "true").out
    waits = home.ok("submit", "-q", *flags, "--gpus", "9", "--", "true").strip()
    explained = home.ok("explain", waits)
    shown = home.json("show", waits)["job"]["reason"]
    home.ok("cancel", waits)

    [group] = json.loads(offers)["offers"]["groups"]
    assert group["prospects"][0]["why"] == "code cached"
    assert "  warm   its code is cached on 1 of 1 workers\n" in explained
    assert "cached" not in shown


SAVES = """
import pathlib, shoal, time
pathlib.Path("ckpt").mkdir()
for step in range(1, 4):
    pathlib.Path("ckpt/step").write_text(str(step))
    shoal.checkpoint("ckpt")
print("saved", flush=True)
time.sleep(60)
"""


def test_the_latest_checkpoint_of_a_job_that_runs_can_be_pulled(
    home: CliHome, tmp_path: Path
) -> None:
    to = tmp_path / "got"
    words = ("--output", "out/", "--", "python", "-c", SAVES)
    job = home.ok("submit", "-q", *words).strip()
    until_s = time.monotonic() + 60.0
    while not (to / "ckpt" / "step").is_file() or (to / "ckpt/step").read_text() != "3":
        assert time.monotonic() < until_s, home("pull", job, "--to", str(to))
        home("pull", job, "--to", str(to))

    running = home("pull", job, "--to", str(to))
    state = home.json("show", job)["job"]["state"]
    home.ok("cancel", job)
    home("wait", "-q", job)
    [after] = home.json("pull", job, "--to", str(tmp_path / "later"))["outputs"]

    assert state == "running"
    assert running.err.startswith(f"checkpoint  {to}  (1 file")
    assert after["checkpoint"]
    assert (tmp_path / "later" / "ckpt" / "step").read_text() == "3"


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
    assert (empty.code, "has no outputs" in empty.err) == (102, True)
    assert (bad.code, "write it like HF_TOKEN" in bad.err) == (2, True)
    assert unknown.code == 102


def test_a_recipe_is_a_program_that_comes_with_shoal(home: CliHome) -> None:
    unknown = home("run", "--recipe", "no-such-recipe")

    assert unknown.code == 2
    assert "there is no recipe 'no-such-recipe'" in unknown.err


def test_outputs_of_earlier_runs_do_not_travel_and_do_not_grow(
    home: CliHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "mine"
    (work / "out").mkdir(parents=True)
    (work / "out" / "from-before").write_text("the user's own")
    (work / "make.sh").write_text("mkdir -p out; echo new > out/result\n")
    monkeypatch.chdir(work)
    flags = ("--workdir", ".", "--output", "out/")

    runs = [home("run", *flags, "--", "sh", "make.sh") for _ in range(3)]

    assert [run.code for run in runs] == [0, 0, 0], runs
    pulled = [path for path in (work / "out").iterdir() if path.is_dir()]
    files = [sorted(each.name for each in path.rglob("*")) for path in pulled]
    assert files == [[".gitignore", "result"]] * 3
    assert "note: left out: 1 file (0.0 MB) of out/" in runs[0].err
    # Without the flag, what was pulled is no code either.
    bare = home("run", "--workdir", ".", "--", "find", ".", "-type", "f")
    assert sorted(bare.out.split()) == ["./make.sh", "./out/from-before"]
