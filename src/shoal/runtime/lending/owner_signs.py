"""Look for signs of a machine's owner: input, busy programs, battery, and the clock.

Terminals tell by the access time of their device when somebody last typed; the kernel
rounds it to eight seconds, but the first key after a pause counts at once. Of desktops
logind knows (`desktop_input.py`). A user may name files instead: whoever touches one of
them is there. A look takes about a millisecond.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from typing import TYPE_CHECKING, Final, final

import psutil

from shoal.core.lending.events import OwnerObserved
from shoal.runtime.lending.desktop_input import DesktopInput, LatestInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.lending.lend_rule import LendRule
    from shoal.drivers.gpus import GpuMaker
    from shoal.runtime.lending.own_processes import OwnProcesses

TERMINALS: Final = ("/dev/tty[1-9]", "/dev/pts/[0-9]*")
DAY_MINUTES: Final = 1_440
TERMINAL_INPUT, DESKTOP_INPUT = "terminals", "desktop"
INPUTS: Final = (TERMINAL_INPUT, DESKTOP_INPUT)
"""Words for what is looked at, among names of files."""


@final
class OwnerSigns:
    """Looks at this machine for its owner. Blocks."""

    def __init__(
        self,
        rule: LendRule,
        processes: OwnProcesses,
        gpus: GpuMaker,
        files: Sequence[str] = (),
    ) -> None:
        """Look for what the rule asks.

        `files` are patterns of files, and the words `terminals` and `desktop`, which
        both count by default.
        """
        self._rule = rule
        named = tuple(files) or INPUTS
        self._files = tuple(each for each in named if each not in INPUTS)
        if TERMINAL_INPUT in named:
            self._files += TERMINALS
        self._desktop = DesktopInput() if DESKTOP_INPUT in named else None
        self._processes = processes
        self._gpus = gpus

    def close(self) -> None:
        """Let go of the system's bus."""
        if self._desktop is not None:
            self._desktop.close()

    def look(self) -> OwnerObserved:
        """Return what is seen now; use of CPUs is since the last look."""
        rule, now = self._rule, time.localtime()
        minute = now.tm_wday * DAY_MINUTES + now.tm_hour * 60 + now.tm_min
        battery = psutil.sensors_battery() if rule.plugged_in else None
        on_battery = battery is not None and battery.power_plugged is False
        if rule.idle_s is None:
            return OwnerObserved(on_battery=on_battery, week_minute=minute)
        latest = latest_input(self._files, time.time())
        desktop = self._desktop.latest() if self._desktop is not None else None
        if desktop is not None and (latest is None or desktop.idle_s < latest.idle_s):
            latest = desktop
        cpu_milli = gpu_milli = 0
        if rule.calm:
            own = self._processes.use()
            cpu_milli = own.others_cpu_milli
            busy = [use.busy_without(own.pids) for use in self._gpus.uses()]
            gpu_milli = max(busy, default=0)
        return OwnerObserved(
            input_idle_s=None if latest is None else latest.idle_s,
            input_at="" if latest is None else latest.at,
            cpu_milli=cpu_milli,
            gpu_milli=gpu_milli,
            on_battery=on_battery,
            week_minute=minute,
        )


def spelled_out(files: Sequence[str]) -> tuple[str, ...]:
    """Return what was named with whole paths, for a process that is elsewhere."""
    return tuple(each if each in INPUTS else os.path.abspath(each) for each in files)  # noqa: PTH100


def latest_input(patterns: Sequence[str], now_s: float) -> LatestInput | None:
    """Return the latest input at files of these patterns; None if there are none.

    A terminal's device says when it was read. Of another file the latest of its times
    counts: it is touched.
    """
    latest: LatestInput | None = None
    for path in (path for pattern in patterns for path in glob.glob(pattern)):  # noqa: PTH207
        try:
            found = os.stat(path)  # noqa: PTH116 - Often.
        except OSError:
            continue  # A terminal was closed meanwhile.
        at_s = found.st_atime
        if not stat.S_ISCHR(found.st_mode):
            at_s = max(at_s, found.st_mtime)
        idle_s = max(0.0, now_s - at_s)
        if latest is None or idle_s < latest.idle_s:
            latest = LatestInput(idle_s, path.removeprefix("/dev/"))
    return latest
