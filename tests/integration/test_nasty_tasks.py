"""Tasks that no driver likes: each ends with a reason, and the node lives on."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.unit.drivers.orders import Watched, order, with_driver

from shoal.drivers.process import ProcessDriver
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

FLAGS = ("--no-sandbox", "--no-web", "--without", "p2p", "-q")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    """Lend one node to all tests here; it must be the same process at the end."""
    with homes(tmp_path_factory.mktemp("nasty")) as make:
        made = make("one")
        made.up(*FLAGS)
        pid = made.info["pid"]
        yield made
        assert made.info["pid"] == pid
        assert made.ok("run", "-q", "--", "echo", "alive") == "alive\n"


def script(home: CliHome, text: str, *flags: str) -> tuple[int, str]:
    done = home("run", *flags, "--", "sh", "-c", text)
    return done.code, done.out + done.err


@pytest.mark.parametrize(
    "work",
    [
        {"argv": ("/bin/true", "x" * 200_000)},
        {"argv": ("/bin/true", *["x" * 60_000] * 60)},
        {"argv": ("/bin/true",), "env": {f"V{n}": "x" * 60_000 for n in range(60)}},
        {"argv": ("/bin/true",), "setup": ("/bin/true", "x" * 200_000)},
    ],
    ids=["one", "many", "env", "setup"],
)
def test_what_is_too_long_to_be_started_is_not_started_and_says_why(
    tmp_path: Path, work: dict[str, Any]
) -> None:
    async def act(driver: ProcessDriver) -> tuple[Outcome, Outcome]:
        long = order(
            *work["argv"], env=work.get("env", {}), setup=work.get("setup", ())
        )
        first = await driver.run(long, Watched())
        return first, await driver.run(order("/bin/true"), Watched())

    first, second = with_driver(tmp_path, act)

    assert first.kind == "not-started"
    assert "too long" in first.reason
    assert second.exit_code == 0


def test_a_million_variables_are_refused_when_they_are_submitted(
    home: CliHome, tmp_path: Path
) -> None:
    path = tmp_path / "many.yaml"
    lines = "".join(f"  V{n}: x\n" for n in range(100_000))
    path.write_text(f"command: ['true']\nenv:\n{lines}")

    done = home("submit", str(path))

    assert done.code == 2
    assert "Traceback" not in done.err


def test_pipes_sockets_and_names_that_are_no_text_are_left_out_of_outputs(
    home: CliHome, tmp_path: Path
) -> None:
    make = (
        "mkdir out; cd out; echo good > fine; mkfifo pipe; ln -s /etc/passwd link; "
        "ln -s pipe alias; printf 'x' > $(printf 'bad\\377name'); mkfifo -m 000 shut"
    )
    code, said = script(home, make, "--output", "out/", "--no-pull")
    assert code == 0, said

    home.ok("pull", "--to", str(tmp_path / "got"))

    got = sorted(each.name for each in os.scandir(tmp_path / "got"))
    assert got == ["alias", "fine"]  # The first leads to nothing now.


def test_a_task_may_take_its_work_directory_away(home: CliHome) -> None:
    away = "cd /; mv $SHOAL_WORKDIR $SHOAL_WORKDIR.gone; echo moved"
    code, said = script(home, away, "--output", "out/")
    assert (code, "moved" in said) == (0, True)

    gone = "cd /; rm -rf $SHOAL_WORKDIR; ln -s /etc $SHOAL_WORKDIR"
    code, said = script(home, gone, "--output", "passwd", "--output", "hosts")
    assert "root:" not in said


def test_a_task_may_close_its_socket_in_the_middle_of_a_word(home: CliHome) -> None:
    talk = (
        "import os, socket\n"
        "for n in range(40):\n"
        "    s = socket.socket(socket.AF_UNIX)\n"
        "    s.connect(os.environ['SHOAL_SOCKET'])\n"
        '    try: s.sendall(b\'{"call": "put", "path": \' + b\'[\' * 5000 * n)\n'
        "    except OSError: pass\n"
        "    s.close()\n"
    )
    done = home("run", "-q", "--", "python3", "-c", talk)

    assert done.code == 0, done
