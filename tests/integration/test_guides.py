"""The guides of a day: every command in them is typed, on a real node."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli_home import homes
from tests.integration.test_notebook import FAKE
from tests.integration.transcripts import Session
from tests.integration.wheels import index_of, make_wheel

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^(?:`(\S+)`:\n\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


HUMANIZE = "def intcomma(number):\n    return f'{number:,}'\n"


@pytest.mark.parametrize(
    "guide",
    [
        "first-job",
        "environments",
        "data",
        "housekeeping",
        "interactive",
        "notebooks",
        "sweeps",
        "tools",
    ],
)
def test_a_guide_does_what_it_says(
    guide: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    index = tmp_path_factory.mktemp("index")
    index.chmod(0o755)
    index.parent.chmod(0o755)
    make_wheel(index, "humanize", "4.9.0", HUMANIZE)
    make_wheel(index, "jupyterlab", "4.0", FAKE)
    session = Session(tmp_path, ROOT / "examples", index_of(index))
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text(encoding="utf-8")
    commands = 0
    try:
        session.machine("a").up("--port", "0", "-q", "--without", "p2p")
        for name, kind, body in BLOCK.findall(text):
            if name:
                (tmp_path / "a" / "work" / name).write_text(body, encoding="utf-8")
            elif kind == "shell":
                session.play(re.sub(r"^\$ ", "a$ ", body, flags=re.MULTILINE))
                commands += body.count("\n$ ") + 1
    finally:
        session.close()

    assert commands >= 3


PRELUDE = """
import ast, asyncio, inspect, sys
import shoal


class GridSearchCV:  # As of scikit-learn, which has a test of its own.
    def __init__(self, model, grid): ...
    def fit(self, data, target): ...


def score(path, threshold=0.5):
    return 0.9


def train(lr):
    return lr


paths, model, grid, data, target = ["a.png", "b.png"], None, {}, [], []
client = shoal.Client()
executor = client.executor()
code = compile(sys.stdin.read(), "python.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
async def run():
    found = eval(code, globals())
    if inspect.iscoroutine(found):
        await found
asyncio.run(run())
"""
TRAIN = """
command: [sh, -c, "mkdir out; echo trained | tee out/model"]
outputs: [out/]
"""


def test_the_blocks_of_the_python_guide_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    blocks = [body for _, kind, body in BLOCK.findall(text) if kind == "py"]
    (tmp_path / "train.yaml").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "prelude.py").write_text(PRELUDE, encoding="utf-8")
    printed = ""
    with homes(tmp_path) as make:
        home = make("home")
        gpus = ("--gpus", "0", "--models", "A100", "--memories", "40960")
        home.up("--port", "0", "--no-web", "-q", "--without", "p2p", *gpus)
        for block in blocks:
            done = subprocess.run(
                [sys.executable, "prelude.py"],
                input=block,
                cwd=tmp_path,
                env=home.env,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
            printed += done.stdout
        inside = ("python", "-c", "import shoal; print(shoal.Client())")
        shown = home.ok("run", "-q", "--", *inside)

    assert len(blocks) >= 7
    assert printed.count("0.9") >= 6
    assert "trained" in printed
    assert (tmp_path / "results" / "model").read_text() == "trained\n"
    assert "Client of the shoal of this task" in shown
