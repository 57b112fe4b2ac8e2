"""The frames and small parts of a supervisor; tests/integration runs real ones."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.drivers.supervisor.supervisor import (
    NotStartedError,
    find_program,
    why_not_started,
)
from shoal.drivers.supervisor.supervisor_frames import (
    START,
    STDINS,
    StartAttempt,
    frame_buffer,
    frames_of,
    pack_start,
    unpack_start,
)

TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
)
LISTS = st.lists(TEXTS, max_size=5)
STARTS = st.builds(
    StartAttempt,
    kept=TEXTS,
    make=TEXTS,
    spare=TEXTS,
    owner=st.integers(-1, 2**31),
    directory=TEXTS,
    cpus=st.sampled_from(["", "0", "0,3", "17"]),
    memory_bytes=st.integers(0, 2**53),
    boxed=st.booleans(),
    scratch_bytes=st.integers(0, 2**53),
    processes_max=st.integers(0, 2**31),
    env=LISTS,
    setup=LISTS,
    shown=LISTS,
    room=LISTS,
    secrets=LISTS,
    argv=st.lists(TEXTS, min_size=1, max_size=5),
    doors=LISTS,
    home=LISTS,
    uplink=LISTS,
    folder=TEXTS,
    disk_bytes=st.integers(0, 1 << 53),
    keep_bytes=st.integers(0, 1 << 53),
    file_bytes=st.integers(0, 1 << 53),
    caches=st.lists(TEXTS.map(lambda text: f"1:{text}"), max_size=3),
    stdin=st.sampled_from(STDINS),
)


@given(STARTS)
def test_an_order_arrives_as_it_was_sent(start: StartAttempt) -> None:
    sent = pack_start(start)

    [(kind, body)] = frames_of(frame_buffer(), sent)
    assert kind == START
    assert unpack_start(body) == start


def test_a_program_is_looked_for_in_the_path_of_the_task(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("", encoding="ascii")
    program.chmod(0o755)
    (tmp_path / "data").write_text("", encoding="ascii")

    assert find_program("tool", [f"PATH=/nowhere:{tmp_path}"]) == str(program)
    assert find_program("./tool", []) == "./tool"
    for name in ("data", "nope"):
        with pytest.raises(NotStartedError, match=f"no such program in PATH: '{name}'"):
            find_program(name, [f"PATH={tmp_path}"])


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "no such program: '/x/y'"),
        (errno.EACCES, "not executable: '/x/y'"),
        (errno.ENOMEM, "no memory, or no more processes, to start '/x/y'"),
        (errno.EAGAIN, "no memory, or no more processes, to start '/x/y'"),
        (errno.ENOEXEC, "not a program of this machine, and without a #! line: '/x/y'"),
        (errno.E2BIG, "its arguments and environment are too long together"),
        (errno.EIO, "cannot start '/x/y': Input/output error"),
    ],
)
def test_a_start_that_fails_has_a_reason(number: int, reason: str) -> None:
    assert why_not_started("/x/y", OSError(number, os.strerror(number))) == reason
