"""Which CPUs a task may use, so that tasks do not push each other around."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Cpus:
    """The CPUs that a worker lends, and how much of each has been given out."""

    def __init__(self, lent: Sequence[int]) -> None:
        """Lend these CPUs, by the numbers of the kernel."""
        assert lent, "a worker lends at least one CPU"
        self._milli = dict.fromkeys(sorted(lent), 0)

    @property
    def idle(self) -> bool:
        """Whether nothing is given out."""
        return not any(self._milli.values())

    def take(self, cpu_milli: int) -> tuple[int, ...]:
        """Return the least used CPUs for a task; none means any.

        A task of 2.5 CPUs gets three, and its share is booked evenly. Who asks for no
        CPU, or for all, is bound to none.
        """
        count = -(-cpu_milli // 1_000)
        if count == 0 or count >= len(self._milli):
            return ()
        chosen = sorted(self._milli, key=lambda cpu: (self._milli[cpu], cpu))[:count]
        for cpu in chosen:
            self._milli[cpu] += cpu_milli // count
        return tuple(sorted(chosen))

    def give(self, cpus: Sequence[int], cpu_milli: int) -> None:
        """Take CPUs back that `take` gave out for this much."""
        for cpu in cpus:
            self._milli[cpu] -= cpu_milli // len(cpus)
            assert self._milli[cpu] >= 0


def as_list(cpus: Sequence[int]) -> str:
    """Write CPUs as the kernel does: "0,3"."""
    return ",".join(map(str, cpus))
