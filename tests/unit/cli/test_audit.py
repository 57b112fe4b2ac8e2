"""`shoal audit` shows what is wanted, and what was changed."""

import json
import time
from pathlib import Path

import msgspec
import pytest

from shoal.cli import main
from shoal.core.durability.audit_chain import AuditEntry
from shoal.net.identity.identity import Identity
from shoal.runtime.durability.audit_log import AuditLog, files
from shoal.runtime.home import Home

NODE = Identity.from_seed(b"7" * 32).node
HOSTILE = "a\x1b]0;owned\x07\x1b[2J\u202e\nINJECTED"


class Log:
    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = Home(path)
        self._capsys = capsys

    def note(self, *entries: AuditEntry) -> None:
        log = AuditLog(self.home)
        for entry in entries:
            log.note(entry)

    def __call__(self, *words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as end:
            main(["audit", *words])
        assert (end.value.code or 0) == code
        seen = self._capsys.readouterr()
        return seen.out or seen.err

    def whats(self, *words: str) -> list[str]:
        return [one["what"] for one in json.loads(self("--json", *words))["entries"]]


@pytest.fixture
def log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Log:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    made = Log(tmp_path, capsys)
    made.note(
        AuditEntry(what="up", at_s=time.time() - 9_000.0, way="command", uid=1000),
        AuditEntry(what="submit", way="certificate", node=NODE, owner="ann", job="j1"),
        AuditEntry(what="cancel", way="socket", uid=1000, job="j1"),
        AuditEntry(what="join", result="refused", way="wire", address="10.0.0.9:4711"),
    )
    return made


def test_the_filters_leave_what_is_wanted(log: Log) -> None:
    petname = log("--what", "submit").split("(")[0].split()[-1]

    assert log.whats() == ["up", "submit", "cancel", "join"]
    assert log.whats("--since", "1h") == ["submit", "cancel", "join"]
    assert log.whats("--who", "ann") == ["submit"]
    assert log.whats("--who", petname) == ["submit"]
    assert log.whats("--who", "10.0.0.9") == ["join"]
    assert log.whats("--job", "j1") == ["submit", "cancel"]
    assert log.whats("--refused") == ["join"]
    assert log.whats("-n", "2") == ["cancel", "join"]


def test_a_table_says_who_did_what_from_where(log: Log) -> None:
    seen = log()

    assert "certificate" in seen
    assert "10.0.0.9:4711" in seen
    assert "uid 1000" in seen


def test_a_log_that_nobody_changed_is_whole(log: Log) -> None:
    found = json.loads(log("--verify", "--json"))

    assert (found["whole"], found["entries"], found["flaws"]) == (True, 4, [])
    assert found["head"] in log("--verify", "--head", found["head"])


def test_a_changed_log_is_told_from_a_whole_one(log: Log) -> None:
    [file] = files(log.home.audit)
    file.write_bytes(file.read_bytes().replace(b'"ann"', b'"bob"'))

    seen = log("--verify", code=1)

    assert "entry 3 does not follow the one before" in seen
    assert "the log was altered" in seen


def test_a_log_without_its_last_lines_is_found_out_by_an_earlier_head(log: Log) -> None:
    head = json.loads(log("--verify", "--json"))["head"]
    [file] = files(log.home.audit)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))

    assert "the chain is intact" in log("--verify")
    assert "is gone" in log("--verify", "--head", head, code=1)


def test_no_text_of_others_steers_the_terminal(log: Log) -> None:
    names = "what way node owner address job of target because"
    log.note(msgspec.convert(dict.fromkeys(names.split(), HOSTILE), AuditEntry))

    for words in ((), ("--json",)):
        seen = log(*words)
        assert all(letter.isprintable() or letter == "\n" for letter in seen)
        assert "\nINJECTED" not in seen


def test_without_a_log_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "none"))
    log = Log(tmp_path, capsys)

    assert "no matching entries" in log()
    assert "there is no audit log" in log("--verify", code=2)
