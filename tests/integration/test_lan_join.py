"""A machine finds a shoal on its network, asks, and is let in by people."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.namespaces import Internet, internet, missing

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(missing()), reason=missing() or "namespaces work"),
]
NEAR_S = 40.0


@pytest.fixture
def net() -> Iterator[Internet]:
    with internet() as made:
        yield made


@pytest.fixture
def first(net: Internet, tmp_path: Path) -> Iterator[CliHome]:
    """A node that others on the network can dial, once it is up."""
    address, prefix = net.machine("first", 1)
    home = CliHome(tmp_path / "first", prefix)
    home.ok("init", "reef")
    home.env["LISTEN"] = f"{address}:4001"
    try:
        yield home
    finally:
        home.close()


@pytest.fixture
def second(net: Internet, tmp_path: Path) -> Iterator[CliHome]:
    _, prefix = net.machine("second", 2)
    home = CliHome(tmp_path / "second", prefix)
    try:
        yield home
    finally:
        home.close()


def up(home: CliHome, *args: str) -> None:
    listen = ("--listen", home.env["LISTEN"]) if "LISTEN" in home.env else ()
    home.up(*listen, *args)


def log_of(home: CliHome) -> str:
    path = home.path / "node.log"
    return path.read_text() if path.exists() else ""


def eventually(condition: Callable[[], Any], home: CliHome) -> Any:  # noqa: ANN401
    until = time.monotonic() + NEAR_S
    while not (found := condition()):
        assert time.monotonic() < until, log_of(home)
        time.sleep(0.3)
    return found


def asked(home: CliHome) -> dict[str, Any]:
    """Return who asks there; nothing while the node starts again."""
    done = home("accept", "--json")
    return json.loads(done.out) if done.code == 0 else {}


def near_of(home: CliHome) -> dict[str, Any]:
    return asked(home).get("near") or {}


def test_somebody_on_the_network_is_let_in_by_one_key(
    first: CliHome, second: CliHome
) -> None:
    up(first)
    up(second, "--lan")
    private = second.info["shoal"]

    [waiting] = eventually(lambda: asked(first).get("newcomers"), second)
    near = near_of(second)
    guessed = first("accept", typed="heron-heron-000\n")
    said = first("accept", typed=f"{near['code']}\n")
    eventually(lambda: len(first.json("nodes")["nodes"]) == 2, second)
    eventually(lambda: second("nodes").code == 0, second)

    assert private == "home", "it has a shoal of its own at once"
    assert (near["code"], near["shoal"]) == (waiting["code"], "reef")
    assert waiting["id"] == second.info["node"]
    assert guessed.code == 106
    assert "somebody may be in between" in guessed.err
    assert 'wants to join "reef"' in said.err
    assert f'it says it lends "{waiting["has"]}"' in said.err
    assert waiting["code"] not in said.err, "it is to be read on the other screen"
    assert "CPU" in waiting["has"]
    assert second.info["shoal"] == "reef"
    assert f"type this code there:  {waiting['code']}" in log_of(second)


def test_somebody_is_let_in_from_the_monitor(first: CliHome, second: CliHome) -> None:
    up(first)
    up(second, "--lan")
    [waiting] = eventually(lambda: asked(first).get("newcomers"), second)
    screen, wire = pty.openpty()
    fcntl.ioctl(wire, termios.TIOCSWINSZ, struct.pack("4H", 30, 110, 0, 0))
    monitor = subprocess.Popen(
        [*first.prefix, "shoal", "top", "--refresh", "0.2"],
        stdin=wire,
        stdout=wire,
        stderr=wire,
        env={**first.env, "TERM": "xterm-256color"},
    )
    os.close(wire)
    try:
        until_seen(screen, "wants to join")
        os.write(screen, b"a")
        until_seen(screen, "[enter] approve")
        before = asked(first)["newcomers"]
        os.write(screen, f"{waiting['code']}\r".encode())
        until_seen(screen, "may join")
        os.write(screen, b"q")
        until_seen(screen, None)
    finally:
        monitor.terminate()
        monitor.wait(20)
        os.close(screen)
    eventually(lambda: len(first.json("nodes")["nodes"]) == 2, second)
    eventually(lambda: second("nodes").code == 0, second)

    assert [one["id"] for one in before] == [waiting["id"]]
    assert second.info["shoal"] == "reef"


def until_seen(screen: int, wanted: str | None) -> None:
    """Read what a program draws until this is in it; None is until it has ended."""
    drawn = ""
    until = time.monotonic() + NEAR_S
    while wanted is None or wanted not in drawn:
        ready, _, _ = select.select([screen], [], [], until - time.monotonic())
        assert ready, drawn
        try:
            part = os.read(screen, 65_536)
        except OSError:  # The other end is closed.
            part = b""
        if not part:
            assert wanted is None, drawn
            return
        drawn += part.decode(errors="replace")


def test_who_is_declined_stays_alone(first: CliHome, second: CliHome) -> None:
    up(first)
    up(second, "--lan")
    [waiting] = eventually(lambda: asked(first).get("newcomers"), second)

    first.ok("accept", waiting["petname"], "--decline")
    eventually(lambda: "somebody there said no" in log_of(second), second)

    assert second.info["shoal"] == "home"
    assert second("run", "--", "true").code == 0


def test_an_open_network_lends_without_a_question(
    first: CliHome, second: CliHome
) -> None:
    up(first, "--open-lan")
    up(second, "--lan")

    eventually(lambda: len(first.json("nodes")["nodes"]) == 2, second)
    eventually(lambda: second("nodes").code == 0, second)

    roles = json.loads((second.path / "membership.json").read_text())["grant"]["roles"]
    assert "any machine on this network can join as a worker" in log_of(first)
    assert second.info["shoal"] == "reef"
    assert roles == ["worker"]


def test_who_did_not_say_so_is_not_moved_before_it_agrees(
    first: CliHome, second: CliHome
) -> None:
    up(first)
    screen, process = on_a_terminal(second)
    try:
        [waiting] = eventually(lambda: asked(first).get("newcomers"), second)
        short = first("accept", waiting["petname"], "--yes")
        first.ok("accept", "--code", waiting["code"])
        eventually(lambda: near_of(second).get("state") == "accepted", second)
        before = second.info["shoal"]
        agreed = second("accept", typed="y\n")
        eventually(lambda: len(first.json("nodes")["nodes"]) == 2, second)
        said = os.read(screen, 65_536).decode()
    finally:
        process.terminate()
        process.wait(20)
        os.close(screen)

    assert short.code == 2, "others can have the same short name"
    assert before == "home"
    assert 'lets this machine join "reef"' in agreed.err
    assert 'found shoal "reef" near you' in said
    assert "`shoal accept` here joins" in said


def on_a_terminal(home: CliHome) -> tuple[int, "subprocess.Popen[bytes]"]:
    """Start a node whose user sits before a screen; return that, and the node."""
    screen, wire = pty.openpty()
    process = subprocess.Popen(
        [*home.prefix, "shoal", "up"],
        stdout=subprocess.DEVNULL,
        stderr=wire,
        env=home.env,
    )
    os.close(wire)
    until = time.monotonic() + NEAR_S
    while not (home.path / "node.json").exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    return screen, process


def test_a_machine_knows_its_address_on_a_network_without_a_router(
    net: Internet,
) -> None:
    address, prefix = net.machine("alone", 3)
    without = [*prefix, "ip", "route", "del", "default"]  # If it has one.
    subprocess.run(without, check=False, capture_output=True)
    ask = (
        "from shoal.interfaces import address_towards as own; print(own(), own('::2'))"
    )

    told = subprocess.run(
        [*prefix, sys.executable, "-c", ask],
        check=True,
        capture_output=True,
        text=True,
    )

    assert told.stdout.split() == [address, "::1"]
