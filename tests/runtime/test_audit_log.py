"""The audit log survives crashes, full disks and other writers."""

import errno
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from shoal.core.durability.audit_chain import AuditEntry, check, read
from shoal.runtime.durability.audit_log import AuditLog, files, lines
from shoal.runtime.home import Home


def whats(home: Home) -> list[str]:
    found = [read(line) for line in lines(home)]
    return [entry.what for entry in found if entry is not None]


def test_the_chain_goes_on_in_the_next_life(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for what in ("up", "invite", "down"):
        AuditLog(home).note(AuditEntry(what=what))

    assert whats(home) == ["up", "invite", "down"]
    assert check(lines(home)).flaws == []
    [file] = files(home.audit)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.audit.stat().st_mode) == 0o700


@pytest.mark.parametrize("left", [b"{", b'{"n":2,"what":"inv', b"\xff" * 20_000])
def test_a_line_that_a_crash_left_unfinished_is_cut_off(
    tmp_path: Path, left: bytes
) -> None:
    home = Home(tmp_path)
    AuditLog(home).note(AuditEntry(what="up"))
    [file] = files(home.audit)
    with file.open("ab") as out:
        out.write(left[:8_000])

    AuditLog(home).note(AuditEntry(what="invite"))

    assert whats(home) == ["up", "invite"]
    assert check(lines(home)).flaws == []


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = AuditLog(home, file_bytes_max=1_000, files_max=4)
    for n in range(200):
        log.note(AuditEntry(what="invite", target=f"t{n}"))

    found = check(lines(home))

    assert len(files(home.audit)) == 4
    assert all(path.stat().st_size < 1_400 for path in files(home.audit))
    assert (found.last, found.flaws) == (200, [])


def test_two_who_write_make_one_chain(tmp_path: Path) -> None:
    home = Home(tmp_path)
    one, other = AuditLog(home), AuditLog(home)

    for _ in range(20):
        one.note(AuditEntry(what="invite"))
        other.note(AuditEntry(what="revoke"))

    assert check(lines(home)).entries == 40
    assert check(lines(home)).flaws == []


def write_some(path: Path) -> None:
    log = AuditLog(Home(path))
    for _ in range(50):
        log.note(AuditEntry(what="invite"))


def test_two_processes_make_one_chain(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=write_some, args=(tmp_path,)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(30)

    found = check(lines(Home(tmp_path)))

    assert (found.entries, found.flaws) == (100, [])


def test_a_full_disk_ends_nothing_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, said = Home(tmp_path), list[str]()
    log = AuditLog(home, say=said.append)
    log.note(AuditEntry(what="up"))

    def full(descriptor: int, data: bytes) -> int:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size + 3)  # A part of it.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for _ in range(5):
            log.note(AuditEntry(what="invite"))
    log.note(AuditEntry(what="revoke"))

    assert len(said) == 1
    assert "No space left" in said[0]
    assert whats(home) == ["up", "lost", "revoke"]
    assert check(lines(home)).flaws == []
    assert log.trouble == ""


def test_what_was_only_counted_is_written_at_the_end(tmp_path: Path) -> None:
    home, now = Home(tmp_path), [0.0]
    log = AuditLog(home, clock=lambda: now[0])
    for n in range(100):
        log.note(AuditEntry(what="join", result="refused", address=f"10.0.0.{n}"))

    log.close()

    last = read(list(lines(home))[-1])
    assert last is not None
    assert (last.count, last.addresses) == (70, 64)


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    home, said = Home(tmp_path), list[str]()
    home.audit.mkdir()
    (home.audit / f"{1:016}.jsonl").symlink_to(tmp_path / "elsewhere")

    AuditLog(home, say=said.append).note(AuditEntry(what="up"))

    assert not (tmp_path / "elsewhere").exists()
    assert said
