"""Bind tasks to CPUs, so that they do not compete for the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Cpus:
    """The CPUs that a worker lends, and the booked share of each."""

    def __init__(self, lent: Sequence[int]) -> None:
        """Lend these CPUs, numbered as in the kernel."""
        assert lent, "a worker lends at least one CPU"
        self._milli = dict.fromkeys(sorted(lent), 0)

    def take(self, cpu_milli: int) -> tuple[int, ...]:
        """Book the least used CPUs for a task and return them; empty means any CPU.

        A task of 2.5 CPUs gets three, with its share booked evenly. A task that asks
        for no CPU, or for all, is not bound.
        """
        count = -(-cpu_milli // 1_000)
        if count == 0 or count >= len(self._milli):
            return ()
        chosen = sorted(self._milli, key=lambda cpu: (self._milli[cpu], cpu))[:count]
        for cpu in chosen:
            self._milli[cpu] += cpu_milli // count
        return tuple(sorted(chosen))

    def give(self, cpus: Sequence[int], cpu_milli: int) -> None:
        """Release CPUs that `take` booked for `cpu_milli`."""
        for cpu in cpus:
            self._milli[cpu] -= cpu_milli // len(cpus)
            assert self._milli[cpu] >= 0


def as_list(cpus: Sequence[int]) -> str:
    """Format CPUs as the kernel does: "0,3"."""
    return ",".join(map(str, cpus))
