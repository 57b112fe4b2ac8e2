"""What is kept of the output of a task."""

from pathlib import Path

import pytest

from shoal.drivers.supervisor import supervisor
from shoal.drivers.supervisor.supervisor import OutputFiles

SECRET = "hunter2hunter3"


def test_of_a_long_output_the_front_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FILE_BYTES_MAX", 10)
    kept = OutputFiles(str(tmp_path / "out"))

    for data in (b"01234567", b"89", b"abcdefghij", b"xyz"):
        kept.write(data)
    kept.close()

    assert (tmp_path / "out").read_bytes() == b"xyz"
    assert (tmp_path / "out.1").read_bytes() == b"abcdefghij"


def test_output_that_cannot_be_kept_is_given_up_once(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine", encoding="ascii")
    (tmp_path / "out").symlink_to(target)
    kept = OutputFiles(str(tmp_path / "out"))

    kept.write(b"data")
    kept.write(b"more")

    assert target.read_text(encoding="ascii") == "mine"


def test_a_secret_is_starred_out_wherever_it_is_cut(tmp_path: Path) -> None:
    kept = OutputFiles(str(tmp_path / "out"), [SECRET])

    for data in (b"a hunt", b"er2hun", b"ter3 b ", b"hunter2hunter3", b" hunter2"):
        kept.write(data)
        assert SECRET.encode() not in (tmp_path / "out").read_bytes()
    kept.close()

    stars = b"*" * len(SECRET)
    whole = b"a " + stars + b" b " + stars + b" hunter2"
    assert (tmp_path / "out").read_bytes() == whole


def test_a_secret_is_starred_out_where_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FILE_BYTES_MAX", 10)
    kept = OutputFiles(str(tmp_path / "out"), [SECRET])

    kept.write(b"0123456hunter2")
    kept.write(b"hunter3!")
    kept.close()

    both = (tmp_path / "out.1").read_bytes()
    if (tmp_path / "out").exists():
        both += (tmp_path / "out").read_bytes()
    assert both == b"0123456" + b"*" * len(SECRET) + b"!"


def test_what_is_too_short_for_a_secret_is_kept_as_it_is(tmp_path: Path) -> None:
    kept = OutputFiles(str(tmp_path / "out"), ["ab"])

    kept.write(b"abc")
    kept.close()

    assert (tmp_path / "out").read_bytes() == b"abc"
