"""How much CPU time a task gets while others want it, too.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final

TASK_NICE: Final = 5  # The node and its owner go first.
LEAST_NICE: Final = "19"
USUAL_NICE: Final = "0"


def lower(pid: int, *, spare_cpu: bool) -> None:
    """Put a process, and what it starts, behind others; 0 is this one.

    With `spare_cpu` it runs only when nothing else wants the CPU.
    """
    if os.getpriority(os.PRIO_PROCESS, pid) < TASK_NICE:  # Less takes a privilege.
        os.setpriority(os.PRIO_PROCESS, pid, TASK_NICE)
    if not spare_cpu:
        return
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    lower_session(pid)


def lower_session(pid: int) -> None:
    """Put the session of a process behind others.

    Kernels that share CPUs between sessions first (autogroup) heed nothing else. A
    sandboxed process cannot do it itself.
    """
    _weigh_session(pid, LEAST_NICE)


def restore(pids: Sequence[int]) -> None:
    """Let processes that had only spare CPU time end beside those that go before them.

    Kernels let only some users take a process out of `SCHED_IDLE`: root, and those
    whose RLIMIT_NICE says so.
    """
    for pid in pids:
        _weigh_session(pid, USUAL_NICE)
        with contextlib.suppress(OSError):  # It has ended, or we may not.
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))


def _weigh_session(pid: int, nice: str) -> None:
    with contextlib.suppress(OSError):  # The kernel has no autogroups.
        fd = os.open(f"/proc/{pid or 'self'}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, nice.encode())
        finally:
            os.close(fd)
