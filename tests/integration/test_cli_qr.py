"""`shoal invite --qr` on terminals of several sizes, and where there is none."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.cli_home import TIMEOUT_S, CliHome, homes

from shoal.cli.display import qr

pytestmark = pytest.mark.integration


class Seen(NamedTuple):
    """What a command printed, and what its user saw."""

    code: int
    out: str
    screen: list[str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("qr")) as make:
        home = make("one")
        home.up("--port", "0")
        yield home


def on_a_screen(home: CliHome, columns: int, lines: int, *args: str) -> Seen:
    """Run a command whose stderr is a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
    going = subprocess.Popen(
        ["shoal", *args],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=home.env,
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65_536):
            seen += part
    except OSError:
        pass  # The other end is closed.
    os.close(ours)
    out, _ = going.communicate(timeout=TIMEOUT_S)
    return Seen(going.returncode, out, seen.decode().splitlines())


def test_a_terminal_shows_the_invitation_that_was_printed(home: CliHome) -> None:
    seen = on_a_screen(home, 80, 40, "invite", "--qr")

    text = seen.out.removeprefix("shoal join ").strip()
    drawn = qr.lines(qr.modules(text), colours=True)
    assert seen.code == 0
    assert seen.screen[-len(drawn) :] == drawn
    assert not any(text in line for line in seen.screen)


def test_who_takes_the_text_alone_sees_the_code_all_the_same(home: CliHome) -> None:
    seen = on_a_screen(home, 80, 40, "invite", "-q", "--qr")

    assert seen.screen == qr.lines(qr.modules(seen.out.strip()), colours=True)


def test_no_colours_are_used_where_they_are_not_wanted(home: CliHome) -> None:
    seen = on_a_screen(home, 80, 40, "--no-color", "invite", "-q", "--qr")

    assert seen.screen == qr.lines(qr.modules(seen.out.strip()), colours=False)


@pytest.mark.parametrize(("columns", "lines"), [(40, 60), (120, 20)])
def test_a_small_terminal_is_told_how_much_it_lacks(
    home: CliHome, columns: int, lines: int
) -> None:
    seen = on_a_screen(home, columns, lines, "invite", "--qr")

    size = len(qr.modules(seen.out.removeprefix("shoal join ").strip()))
    said = " ".join(seen.screen)
    assert seen.code == 0
    assert (
        f"no QR code, because it needs {size + 8} columns and {size // 2 + 6} lines"
        in (said)
    )
    assert f"this terminal has {columns} and {lines}" in said
    assert "█" not in said


def test_without_a_terminal_the_text_is_printed_and_the_lack_is_said(
    home: CliHome,
) -> None:
    done = home("invite", "--qr")

    assert done.code == 0
    assert done.out.startswith("shoal join shoal1-")
    assert "note: no QR code, because stderr is not a terminal" in done.err


def test_a_program_gets_the_rows_of_the_code(home: CliHome) -> None:
    document = home.json("invite", "--qr")

    rows = qr.modules(document["invitation"])
    assert document["qr"] == ["".join(map(str, row)) for row in rows]


def test_what_a_camera_reads_lets_in(
    home: CliHome, fresh: Callable[[str], CliHome]
) -> None:
    capitals = home.ok("invite", "-q").strip().upper()

    fresh("second").ok("join", capitals, "--no-up")


def test_the_text_is_nowhere_but_where_it_was_printed(home: CliHome) -> None:
    seen = on_a_screen(home, 80, 40, "invite", "-q", "--qr")

    for path in filter(Path.is_file, home.path.rglob("*")):
        data = path.read_bytes().upper()
        assert seen.out.strip().upper().encode() not in data, path
