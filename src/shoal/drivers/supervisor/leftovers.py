"""Kill processes left by an earlier run of this worker, before it says `Booted`.

A supervisor kills its task as soon as its node dies, so there are leftovers only if
both were killed, or if the node restarts sooner than that. Leftovers are found in three
ways: by a marker file for each supervisor (pid, start time, boot), as descendants of a
living supervisor, and by a variable in the environment of every process that a worker
starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shoal import failpoints
from shoal.drivers.supervisor.process_tree import descendants
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VARIABLE: Final = "SHOAL_WORKER"
ATTEMPT_VARIABLE: Final = "SHOAL_ATTEMPT"
SLOT_VARIABLE: Final = "SHOAL_SLOT"
"""Marks supervisors and keepers, whose environment names no attempt."""

MACHINE_ID: Final = Path("/etc/machine-id")
MACHINE_ID_BYTES_MAX: Final = 64
CLEAR_TIMEOUT_S: Final = 20.0
PASS_WAIT_S: Final = 0.5
QUIET_PASSES: Final = 2
QUIET_PAUSE_S: Final = 0.01
"""Pause before looking again: during `exec` an environment is unreadable."""

START_TIME_FIELD: Final = 19  # of /proc/PID/stat, after the name


class LeftoverProcess(msgspec.Struct, frozen=True, order=True):
    """A process, told apart from later ones with the same pid."""

    pid: int
    started: int  # in clock ticks after boot


def worker_mark(folder: Path) -> str:
    """Return the mark of all processes of the worker that uses `folder`.

    Tasks see the mark, so nobody must be able to confirm a guess of `folder` by it:
    it is salted with the machine id, which tasks cannot read.
    """
    salt = b""
    with contextlib.suppress(OSError):
        salt = MACHINE_ID.read_bytes()[:MACHINE_ID_BYTES_MAX]
    path = os.fsencode(folder.absolute())
    return hashlib.blake2b(path, key=salt, digest_size=12).hexdigest()


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_at(pid: int) -> int | None:
    """Return the start time of a process; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[START_TIME_FIELD])


def write_marker(path: Path, pid: int) -> None:
    """Write a marker file for a process that we have just started."""
    session = pid  # Each leads its own session.
    text = f"{pid} {started_at(pid) or 0} {session} {boot_id()}\n"
    path.write_text(text, encoding="ascii")


def read_marker(path: Path) -> LeftoverProcess | None:
    """Return the process named by a marker file; None if it is gone."""
    try:
        pid, started, _session, boot = path.read_text(encoding="ascii").split()
        process = LeftoverProcess(int(pid), int(started))
    except (OSError, ValueError):
        return None
    alive = boot == boot_id() and started_at(process.pid) == process.started
    return process if alive else None


def marked(
    mark: str, attempt: str = "", slot: int | None = None
) -> list[LeftoverProcess]:
    """Return all processes of a worker, or of one attempt on it, except this one.

    With a slot, include its supervisor and the keeper of its sandbox.
    """
    ours = f"{VARIABLE}={mark}".encode()
    signs = {f"{ATTEMPT_VARIABLE}={attempt}".encode()} if attempt else set[bytes]()
    if slot is not None:
        signs.add(f"{SLOT_VARIABLE}={slot}".encode())
    found: list[LeftoverProcess] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours not in variables or (signs and signs.isdisjoint(variables)):
            continue
        if started := started_at(int(folder.name)):
            found.append(LeftoverProcess(int(folder.name), started))
    return found


def clear(folder: Path, *, timeout_s: float = CLEAR_TIMEOUT_S) -> int:
    """Kill all processes left by earlier runs of the node; return how many.

    Blocks: call it in a thread. Raises if a process does not die, because the worker
    must not lend devices that are still in use.
    """
    markers = sorted(folder.glob("supervisor-*"))
    known = [found for path in markers if (found := read_marker(path))]
    mark = worker_mark(folder)
    killed = kill_until_gone(mark, known=known, timeout_s=timeout_s)
    failpoints.reach("boot.cleared")
    for path in markers:
        path.unlink(missing_ok=True)
    return killed


def kill_until_gone(
    mark: str,
    attempt: str = "",
    *,
    slot: int | None = None,
    known: Sequence[LeftoverProcess] = (),
    timeout_s: float = CLEAR_TIMEOUT_S,
) -> int:
    """Kill `known` and `marked` processes and their descendants; return how many."""
    deadline = time.monotonic() + timeout_s
    killed: set[LeftoverProcess] = set()
    quiet = 0
    while quiet < QUIET_PASSES:
        roots = [p for p in known if started_at(p.pid) == p.started]
        roots += marked(mark, attempt, slot)
        found = sorted({*roots, *_below(roots)})
        quiet = 0 if found else quiet + 1
        if not found:
            time.sleep(QUIET_PAUSE_S)
            continue
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in found)
            raise ShoalError(
                f"processes of an earlier life do not end: {pids}",
                because=f"they were killed, and waited for {timeout_s:g} s",
                hint="they may hang in a broken device or disk; see `ps -o stat,wchan`",
            )
        killed.update(found)
        kill(found, PASS_WAIT_S)
    return len(killed)


def kill(processes: Iterable[LeftoverProcess], wait_s: float) -> None:
    """Kill processes, never ones that reuse their pids; wait up to `wait_s` for it."""
    fds: list[int] = []
    for process in processes:
        with contextlib.suppress(OSError):
            fds.append(os.pidfd_open(process.pid))
            if started_at(process.pid) == process.started:
                signal.pidfd_send_signal(fds[-1], signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    for fd in fds:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1_000)
        os.close(fd)


def _below(roots: Iterable[LeftoverProcess]) -> list[LeftoverProcess]:
    pids = {pid for root in roots for pid in descendants(root.pid)}
    times = {pid: started_at(pid) for pid in sorted(pids)}
    return [LeftoverProcess(pid, started) for pid, started in times.items() if started]
