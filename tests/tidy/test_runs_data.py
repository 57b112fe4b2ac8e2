"""Nothing runs what is in data, but in the few places that say why they may."""

from pathlib import Path

import pytest
from tests.tidy.runs_data import runs_data

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "shoal"

ALLOWED: dict[str, tuple[str, set[str]]] = {
    "client/results.py": (
        "reads pickled exceptions, but only of machines of the caller's own owner",
        {"imports pickle"},
    ),
    "drivers/lane.py": (
        "is the interpreter that runs a user's functions, in the sandbox of a task",
        {"imports pickle"},
    ),
    "joblib.py": (
        "registers a backend of joblib, and loads no file with it",
        {"imports joblib"},
    ),
    "protocol/payloads.py": (
        "is used by interpreters in their sandbox, and by `client/results.py`",
        {"imports pickle", "imports cloudpickle"},
    ),
    "task_client.py": (
        "maps a value that the user of a function has scattered, within the task",
        {"imports pickle"},
    ),
    "train/checkpoints.py": (
        "names the error of torch for a damaged file; it loads weights only",
        {"imports pickle"},
    ),
    "train/programs/__init__.py": (
        "runs a program of the job's own workdir, within the task",
        {"calls runpy.run_path"},
    ),
}


def test_nothing_runs_what_is_in_data_except_where_it_is_allowed() -> None:
    found = {
        str(path.relative_to(SRC)): set(complaints)
        for path in sorted(SRC.rglob("*.py"))
        if (complaints := runs_data(path.read_text(encoding="utf-8")))
    }

    assert found == {name: allowed for name, (_, allowed) in ALLOWED.items()}


def test_pickles_are_read_in_four_modules_and_no_other() -> None:
    readers = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if "pickle.load" in (text := path.read_text(encoding="utf-8"))
        or "payloads.loads" in text
    }

    assert readers == {
        "client/results.py",
        "drivers/lane.py",
        "protocol/payloads.py",
        "task_client.py",
    }


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import pickle", "imports pickle"),
        ("from cloudpickle import loads", "imports cloudpickle"),
        ("import_module('marshal')", "imports marshal"),
        ("eval('1')", "calls eval"),
        ("yaml.load(text, Loader=yaml.Loader)", "calls yaml.load"),
        ("torch.load(path)", "calls torch.load without weights_only=True"),
        ("numpy.load(path)", "calls numpy.load without allow_pickle=False"),
        ("subprocess.run(text, shell=True)", "calls subprocess.run with a shell"),
        ("os.system(text)", "calls os.system"),
    ],
)
def test_the_check_sees_each_way(source: str, complaint: str) -> None:
    assert runs_data(source) == [complaint]


def test_the_check_lets_safe_calls_be() -> None:
    assert runs_data("torch.load(path, weights_only=True)\nre.compile(text)") == []
