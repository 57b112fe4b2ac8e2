"""Workflows of Snakemake run in the shoal, with the real Snakemake.

`make test-integrations` installs it. Where it is missing, the tests are skipped.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration

WAIT_S = 120.0
FLAGS = ("--executor", "shoal", "--shoal-python", "tools", "--jobs", "4")
OFTEN = ("--seconds-between-status-checks", "1")

SNAKEFILE = """
configfile: "config.yaml"

rule all:
    input: "all.txt", "folder"

rule upper:
    input: "data/{x}.txt"
    output: "up/{x}.txt"
    log: "logs/{x}.log"
    threads: 1
    resources: mem_mb=300, runtime=5
    script: "scripts/upper.py"

rule gather:
    input: expand("up/{x}.txt", x=config["names"])
    output: "all.txt"
    group: "end"
    shell: "cat {input} > {output}; echo {{x}} >> {output}; ls data >> {output} || true"

rule folder:
    input: "all.txt"
    output: directory("folder")
    group: "end"
    shell: "mkdir folder && cp all.txt folder/copy"

rule broken:
    output: "broken.txt"
    log: "logs/broken.log"
    shell: "echo what went wrong | tee {log}; exit 3"

rule slow:
    output: "slow.txt"
    shell: "sleep {config[nap]}; echo slow > {output}"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    pytest.importorskip("snakemake")
    with homes(tmp_path_factory.mktemp("snakemake")) as make:
        home = make("home")
        home.up("--python", f"tools={sys.prefix}")
        yield home


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    for folder in ("data", "scripts"):
        (tmp_path / folder).mkdir()
    for name in ("a", "b[1]"):
        (tmp_path / "data" / f"{name}.txt").write_text(f"{name}\n")
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "config.yaml").write_text('{names: [a, "b[1]"], nap: 600}')
    (tmp_path / "scripts" / "letters.py").write_text(
        "def large(text):\n    return text.upper()\n"
    )
    (tmp_path / "scripts" / "upper.py").write_text(
        "from pathlib import Path\nfrom letters import large\n"
        "text = Path(snakemake.input[0]).read_text()\n"
        "Path(snakemake.output[0]).write_text(large(text))\n"
        "Path(snakemake.log[0]).write_text(str(snakemake.resources.mem_mb))\n"
    )
    return tmp_path


def started(home: CliHome, workflow: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *FLAGS, *OFTEN, *words],
        cwd=workflow,
        env={**os.environ, **home.env, "XDG_CACHE_HOME": str(workflow / ".cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(home: CliHome, workflow: Path, *words: str) -> tuple[int, str]:
    process = started(home, workflow, *words)
    try:
        out, _ = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    return process.returncode, out


def jobs_of(home: CliHome, name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = home.json("ps", "--all")["jobs"]
    return [job for job in found if job["name"] == name]


def test_files_travel_and_come_back_and_a_group_is_one_job(
    home: CliHome, workflow: Path
) -> None:
    code, out = run(home, workflow)

    assert code == 0, out
    whole = (workflow / "all.txt").read_text()
    assert whole.startswith("A\nB[1]\n{x}\n")
    assert "a.txt" not in whole, "a job sees its own input alone"
    assert (workflow / "folder" / "copy").read_text() == whole
    assert (workflow / "logs" / "a.log").read_text() == "300"
    assert len(jobs_of(home, "upper")) == 2
    assert len(jobs_of(home, "end_folder_gather")) == 1
    shown = home.json("show", jobs_of(home, "upper")[0]["id"])
    assert "300 MiB" in json.dumps(shown)
    assert run(home, workflow)[1].count("Nothing to be done") == 1


def test_a_job_that_fails_is_told_with_its_output_and_its_log(
    home: CliHome, workflow: Path
) -> None:
    code, out = run(home, workflow, "broken.txt")

    assert code == 1
    assert re.search(r"job \w+ of the shoal failed: exit code 1", out)
    assert "what went wrong" in out
    assert (workflow / "logs" / "broken.log").read_text() == "what went wrong\n"
    assert not (workflow / "broken.txt").exists()


def test_input_from_elsewhere_is_refused_with_what_to_do(
    home: CliHome, workflow: Path
) -> None:
    (workflow / "data" / "a.txt").unlink()
    (workflow / "data" / "a.txt").symlink_to("/etc/hostname")

    code, out = run(home, workflow, "up/a.txt")

    assert code == 1
    assert "left out: data/a.txt, a link that leads out of the folder" in out
    assert "copy the file into the folder of the workflow" in out


def test_a_workflow_that_is_given_up_leaves_no_job(
    home: CliHome, workflow: Path
) -> None:
    process = started(home, workflow, "slow.txt")
    eventually(lambda: states(home, "slow")[-1:] == ["running"], WAIT_S)

    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=WAIT_S)

    eventually(lambda: states(home, "slow")[-1:] == ["cancelled"], WAIT_S)


def states(home: CliHome, name: str) -> list[str]:
    return [job["state"] for job in jobs_of(home, name)]


def test_a_killed_snakemake_finds_its_job_again(home: CliHome, workflow: Path) -> None:
    before = len(jobs_of(home, "slow"))
    process = started(home, workflow, "slow.txt", "--config", "nap=5")
    eventually(lambda: len(jobs_of(home, "slow")) > before, WAIT_S)
    marks = workflow / ".snakemake" / "incomplete"
    eventually(lambda: any(map(str.strip, texts_in(marks))), WAIT_S)
    process.kill()
    process.communicate()
    shutil.rmtree(workflow / ".snakemake" / "locks")

    code, out = run(home, workflow, "slow.txt")

    assert code == 0, out
    assert "of the shoal already" in out
    assert len(jobs_of(home, "slow")) == before + 1, "it was not submitted twice"
    assert (workflow / "slow.txt").read_text() == "slow\n"


def texts_in(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("*")]
