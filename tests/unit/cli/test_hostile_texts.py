"""Whatever other nodes write, no command lets it steer the terminal."""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from shoal.api import node_file
from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.cli import COMMANDS, main
from shoal.cli.display.printing import info_lines
from shoal.cli.monitor.screens import Monitor
from shoal.errors import ShoalError

M = TypeVar("M", bound=Message)

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x1b[8m\x9b31m\u202e\u200b\x7f\r\nINJECTED\x00\ud83d"
"""A title, a wiped screen, hidden and backward letters, and a line of its own."""

TEXT = HOSTILE.encode("utf-8", "replace").decode()
OURS = re.compile(r"\x1b\[(?:3[0-9]|0)m")
"""Colours of states, which tables have."""

WRITTEN = re.compile(r"a\x1b\[8m31m\u200b\r\n(?:[^\n]*\| )?INJECTED\?")
"""What is left of the text if a task wrote it: lines, and colours."""

WORDS = {
    "accept": ["accept"],
    "alloc": ["alloc", "list"],
    "cancel": ["cancel", "all"],
    "doctor": ["doctor"],
    "drain": ["drain"],
    "events": ["events"],
    "explain": ["explain", "a"],
    "invite": ["invite"],
    "logs": ["logs", "a"],
    "metrics": ["metrics", "a"],
    "monitor": ["monitor", "--once"],
    "nodes": ["nodes"],
    "ping": ["ping", "-c", "1"],
    "plan": ["plan", "--", "true"],
    "ps": ["ps", "--everywhere"],
    "pull": ["pull", "a"],
    "retry": ["retry", "a"],
    "revoke": ["revoke", "a"],
    "rm": ["rm", "a"],
    "run": ["run", "--no-pull", "--", "true"],
    "secret": ["secret", "list"],
    "show": ["show", "a"],
    "slurm": ["slurm", "sinfo"],
    "submit": ["submit", "--", "true"],
    "top": ["top", "--once"],
    "usage": ["usage"],
    "wait": ["wait", "a", "--timeout", "0s"],
    "notebook": ["notebook", "a", "--detach"],
    "web": ["web", "--no-open"],
}
ALSO = [
    ["nodes", "-q"],
    ["ps"],
    ["ps", "-q"],
    ["run", "--watch", "--no-pull", "--", "true"],
    ["metrics", "a", "--csv"],
    ["accept", "a", "--decline"],
    ["rm", "--state", "failed", "--yes"],
    ["usage", "--by", "job", "--csv"],
]
HAS_JSON = sorted(set(WORDS) - {"web", "monitor", "slurm", "top"})
SAYS_NOTHING_OF_OTHERS = {
    "audit": "tests/unit/cli/test_audit.py has its own",
    "completion": "prints a script of ours",
    "down": "says the name of the own node",
    "exec": "output goes through the filter of logs; errors the way of all errors",
    "forward": "says addresses of this machine; errors go the way of all errors",
    "init": "asks no node",
    "join": "asks no API; its errors go the way of all errors",
    "key": "asks no node",
    "leave": "says the name of the own shoal",
    "policy": "reads files of the user",
    "renew": "asks no node",
    "schema": "prints a text of ours",
    "server": "is up",
    "set": "reads files of the user",
    "sim": "asks no node",
    "token": "reads files of the user",
    "up": "prints info_lines, see below",
    "worker": "is join and up",
}


class HostileNode:
    """Answers everything, with the same text in every field."""

    def __init__(self, state: int, fails: str = "") -> None:
        self._state = state
        self._fails = fails

    def ask(self, method: str, request: Message, type_: type[M], timeout_s: float) -> M:
        if self._fails in (method, "all"):
            raise ShoalError(TEXT, because=TEXT, hint=TEXT)
        answer = type_()
        filled(answer, self._state)
        return answer

    def follow(
        self, method: str, request: Message, type_: type[M], timeout_s: float | None
    ) -> Iterator[M]:
        yield self.ask(method, request, type_, 1.0)


def filled(message: Message, state: int, depth: int = 0) -> None:
    """Put the text into every field, and one of each into every list."""
    for field in message.DESCRIPTOR.fields:
        value = value_of(field, state)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth > 6:
                continue
            if field.message_type.GetOptions().map_entry:
                getattr(message, field.name)[TEXT] = map_value(field, state)
            elif field.is_repeated:
                filled(getattr(message, field.name).add(), state, depth + 1)
            else:
                filled(getattr(message, field.name), state, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)


def map_value(field: FieldDescriptor, state: int) -> object:
    return value_of(field.message_type.fields_by_name["value"], state)


def value_of(field: FieldDescriptor, state: int) -> object:
    if field.name == "state" and field.type == FieldDescriptor.TYPE_STRING:
        return "accepted"
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return TEXT
        case FieldDescriptor.TYPE_BYTES:
            return TEXT.encode()
        case FieldDescriptor.TYPE_BOOL:
            return True
        case FieldDescriptor.TYPE_ENUM:
            return state
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return 1.0
        case _:
            return 1


@pytest.fixture
def said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> "Said":
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return Said(monkeypatch, capsys)


class Said:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def by(self, words: list[str], node: HostileNode, *, screen: bool = True) -> str:
        """Return what a command sends to a terminal, asking such a node."""
        client = api.Client("nowhere", name="n", plain=node)  # type: ignore[arg-type]
        patch = self._monkeypatch.setattr
        patch(api, "connect", lambda *_args, **_kwargs: client)
        patch(node_file, "running", lambda _home: object())
        if screen:
            patch(sys.stdout, "isatty", lambda: True)
            patch(sys.stderr, "isatty", lambda: True)
        patch(sys.stdin, "readline", lambda: "a\n")
        with pytest.raises(SystemExit):
            main(words)
        seen = self._capsys.readouterr()
        return seen.out + seen.err


def harmless(seen: str) -> bool:
    plain = OURS.sub("", seen)
    return all(letter.isprintable() or letter == "\n" for letter in plain)


@pytest.mark.parametrize("state", [pb.STATE_WAITING, pb.STATE_FAILED, pb.STATE_DONE])
@pytest.mark.parametrize("words", [*WORDS.values(), *ALSO], ids=" ".join)
def test_no_command_passes_on_what_steers_a_terminal(
    said: Said, words: list[str], state: int
) -> None:
    seen = said.by(words, HostileNode(state))

    seen = WRITTEN.sub("", seen)
    assert seen
    assert harmless(seen), seen
    assert "\nINJECTED" not in seen


@pytest.mark.parametrize("words", WORDS.values(), ids=" ".join)
def test_an_error_of_another_node_is_safe_and_keeps_its_form(
    said: Said, words: list[str]
) -> None:
    seen = said.by(words, HostileNode(pb.STATE_DONE, fails="all"))

    assert harmless(seen), seen
    assert "\nINJECTED" not in seen


@pytest.mark.parametrize("command", HAS_JSON)
def test_json_is_json_in_plain_letters(said: Said, command: str) -> None:
    seen = said.by([*with_json(WORDS[command])], HostileNode(pb.STATE_DONE))
    seen = WRITTEN.sub("", seen)

    assert harmless(seen)
    assert seen.isascii() or command in ("run", "wait", "pull"), "stderr has texts"
    lines = [line for line in seen.splitlines() if line.startswith("{")]
    assert all(json.loads(line) for line in lines)


def with_json(words: list[str]) -> list[str]:
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--json", *words[at:]]


def test_no_command_is_forgotten_here() -> None:
    assert set(COMMANDS) <= set(WORDS) | set(SAYS_NOTHING_OF_OTHERS)
    assert not set(WORDS) & set(SAYS_NOTHING_OF_OTHERS)


def test_what_a_node_is_told_in_lines_of_our_own(said: Said) -> None:
    info = pb.NodeInfo()
    filled(info, pb.STATE_DONE)

    from shoal.cli.options import talk  # noqa: PLC0415 - As `shoal up` does.

    for line in info_lines(info):
        talk(line)
    seen = said._capsys.readouterr().err  # pyright: ignore[reportPrivateUsage]

    assert seen
    assert harmless(seen)


ROOT = Path(__file__).parents[3] / "src/shoal/cli"
DOORS = {"terminal.py", "task_output.py", "follow_output.py", "training_curves.py"}


def test_only_one_module_writes_to_the_terminal() -> None:
    ways = re.compile(r"click\.s?echo\(|^ +print\(|sys\.std\w+\.write\(", re.MULTILINE)
    found = [
        path.name
        for path in ROOT.rglob("*.py")
        if path.name not in DOORS and ways.search(path.read_text())
    ]

    assert found == []


def test_the_monitor_shows_nothing_that_steers_a_terminal() -> None:
    node = HostileNode(pb.STATE_RUNNING)
    source = api.Client("nowhere", name="n", plain=node)  # type: ignore[arg-type]
    seen: list[str] = []

    async def look() -> None:
        app = Monitor(source, refresh_s=60.0)
        async with app.run_test(size=(200, 50)) as pilot:
            for key in ("", "e", "a", "escape", "escape", "enter"):
                await pilot.press(*filter(None, [key]))
                await pilot.pause()
                await app.workers.wait_for_complete()
                await pilot.pause()
                strips = app.screen._compositor.render_strips()  # pyright: ignore[reportPrivateUsage]
                seen.extend(strip.text for strip in strips)

    asyncio.run(look())

    assert "owned" in "".join(seen)
    assert [line for line in seen if not line.isprintable()] == []
    assert not any(line.startswith("INJECTED") for line in seen)
