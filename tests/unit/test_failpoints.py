"""What a failpoint may be called, and when it strikes."""

import os
import re
import signal
from pathlib import Path
from typing import get_args

import pytest

from shoal.core.durability.journal import Entry
from shoal.errors import UsageError
from shoal.failpoints import ARMED, NAMES, parsed
from shoal.protocol import messages
from shoal.protocol.message import Message

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
SOURCE = Path(__file__).parents[2] / "src" / "shoal"


@pytest.mark.parametrize(
    "wrong",
    [
        "send.report",
        "send.report:explode",
        "nowhere:kill",
        "send.report:0:kill",
        "send.report:-1:kill",
        "send.report:1:2:kill",
        ":kill",
    ],
)
def test_what_is_no_failpoint_is_refused_with_the_way_to_write_one(wrong: str) -> None:
    with pytest.raises(UsageError, match="is no failpoint") as refused:
        parsed(wrong)

    assert "NAME:TIMES:ACTION, with kill, stop, linger" in refused.value.because


def test_nothing_is_armed_unless_the_environment_says_so() -> None:
    assert parsed("") is None
    assert ARMED is None


def test_a_failpoint_strikes_at_its_passing_and_at_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    failpoint = parsed("send.report:2:stop")
    assert failpoint is not None

    passed: list[int] = []
    for name in ("send.report", "send.offer", "send.report", "send.report"):
        failpoint.reach(name)
        passed.append(len(sent))

    assert passed == [0, 0, 1, 1]
    assert sent == [(os.getpid(), signal.SIGSTOP)]


def test_the_document_lists_exactly_the_failpoints_that_there_are() -> None:
    rows = re.findall(
        r"^\| `([a-z0-9.]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE
    )

    assert rows == list(NAMES)


def test_every_failpoint_that_names_an_entry_or_a_message_names_a_real_one() -> None:
    structs = [each for each in vars(messages).values() if isinstance(each, type)]
    said = [each for each in structs if issubclass(each, Message)]
    kinds = {str(each.__struct_config__.tag) for each in (*said, *get_args(Entry))}

    for name in NAMES:
        place, _, kind = name.partition(".")
        if place in ("record", "kept", "send", "sent"):
            assert kind in kinds, name
        else:
            assert any(f'reach("{name}")' in text for text in _sources()), name


def _sources() -> list[str]:
    return [path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))]
