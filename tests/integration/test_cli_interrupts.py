"""Ctrl-C before a command has begun: while Python still loads what it needs."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome

pytestmark = pytest.mark.integration

PIPE_BYTES = 4_096  # About sixty lines: a process that loads cannot be further ahead.
BEGUN = b"| shoal.entry\n"  # The line by which Python says that it is loaded.


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> CliHome:
    return CliHome(tmp_path_factory.mktemp("interrupted"))


def interrupted(home: CliHome, modules: int, *args: str) -> tuple[int, list[bytes]]:
    """Interrupt a command that has loaded so many modules of those it needs.

    Python is asked to tell what it loads, through a pipe that is small enough for it to
    wait there for us. Returned is what else was said.
    """
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    going = subprocess.Popen(
        ["shoal", *args],
        stdout=subprocess.DEVNULL,
        stderr=writing,
        env={**home.env, "PYTHONPROFILEIMPORTTIME": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        heard = b""
        while BEGUN not in heard or heard.partition(BEGUN)[2].count(b"\n") < modules:
            part = pipe.read(256)
            assert part, heard
            heard += part
        going.send_signal(signal.SIGINT)
        while part := pipe.read(PIPE_BYTES):
            heard += part
    code = going.wait(20)
    said = heard.partition(BEGUN)[2].splitlines()
    return code, [line for line in said if line and b"import time" not in line]


@pytest.mark.parametrize("modules", range(1, 100, 10))
def test_ctrl_c_while_the_command_line_loads_ends_it_quietly(
    home: CliHome, modules: int
) -> None:
    code, said = interrupted(home, modules, "ps")

    assert code == 130
    assert said == []


@pytest.mark.parametrize("line", ["submit -- true", "nodes", "doctor", "sim", "top"])
def test_ctrl_c_at_the_very_beginning_ends_any_command_quietly(
    home: CliHome, line: str
) -> None:
    code, said = interrupted(home, 1, *line.split())

    assert code == 130
    assert said == []


def test_ctrl_c_where_python_can_raise_nothing_is_heeded_too(tmp_path: Path) -> None:
    script = """
import weakref
from shoal import cli, entry

class Thing:
    pass

def interrupt(_):
    raise KeyboardInterrupt

def command():
    thing = Thing()
    watch = weakref.ref(thing, interrupt)
    del thing
    print("not heeded")

cli.main = command
entry.main()
"""
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
