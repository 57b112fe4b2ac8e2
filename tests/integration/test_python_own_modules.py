"""A script with modules of its own, as a stranger would write it, on a real node."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.calling import client, node
from tests.integration.cli_home import CliHome

import shoal
from shoal.errors import CallRefusedError

pytestmark = pytest.mark.integration

FILES = {
    "helper.py": """
import lab.core

class Odd(Exception):
    def __init__(self, n, why):
        super().__init__(n, why)
        self.n = n

class Conf:
    def __init__(self, k):
        self.k = k

def double(x):
    return lab.core.scaled(x, 2)
""",
    "lab/__init__.py": "",
    "lab/core.py": """
from pathlib import Path

from .tables import RATE

def scaled(x, k):
    return x * k * RATE

def words():
    return (Path(__file__).parent / "data" / "words.txt").read_text().split()
""",
    "lab/tables.py": "RATE = 10\n",
    "lab/data/words.txt": "one two three\n",
    "main.py": """
import os

import helper
import shoal
from helper import Conf, Odd

class Sum:
    n = 0
    def add(self, x):
        self.n += x
        return self

def lazy(x):
    from lab.core import words
    return len(words()) + x

def fails(n):
    raise Odd(n, "odd")

def forks():
    child = os.fork()
    if child == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

with shoal.Client(start=False, lanes=1, cpu=0.2) as client:
    print(client.submit(lambda x: helper.double(x), 3).result())
    print(client.submit(lazy, 1).result())
    print(list(client.map(lambda conf: conf.k, [Conf(1), Conf(2)])))
    try:
        client.submit(fails, 3).result()
    except Odd as error:
        print(error.n, "fails" in str(error.__cause__))
    print(client.submit(Sum().add, 5).result().n, client.submit(forks).result())
    big = b"x" * (20 << 20)
    print(client.submit(lambda: len(big)).result())
""",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with node(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.mark.usefixtures("home")
def test_a_script_travels_with_its_modules_packages_and_data(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "60",
        "4",
        "[1, 2]",
        "3 True",
        "5 7",
        str(20 << 20),
    ]


def test_calls_that_cannot_run_raise_and_interpreters_give_way(home: CliHome) -> None:
    with client(never_s=0.5, cpu=1.5, lanes=1, idle_s=600) as caller:
        with pytest.raises(CallRefusedError, match="no node has a"):
            caller.submit(pow, 2, 3, gpu="A100").result(60)
        future = caller.submit(pow, 2, 3)
        assert future.result(60) == 8
        shown = (repr(future), repr(caller), caller._repr_html_())
        listed = {job["name"] for job in home.json("ps")["jobs"]}
        job = caller.submit({"command": ["true"], "resources": {"cpu": 1.5}})
        state = job.wait(60)  # The interpreter would have stayed for ten minutes.
        cells = job._repr_html_()

    assert shown[0] == "<Future pow: returned int>"
    assert " interpreters, 0 calls" in shown[1]
    assert "<th>CPUs free</th>" in shown[2]
    assert "calls" not in listed
    assert state == "done"
    assert "<td>main.0</td><td>done</td>" in cells
    assert {"Client", "Job", "task", "log"} <= {*dir(shoal)}
    assert "TYPE_CHECKING" not in dir(shoal)
