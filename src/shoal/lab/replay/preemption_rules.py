"""Who runs where jobs can be stopped.

`ByOrder` goes by a queue order, `ByService` by the service that jobs have had.
`Braided` and `Interleaved` let jobs share GPUs.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.lab.replay.interleaving import Interleaved, step_of
from shoal.lab.replay.preemptive import TICKS_PER_S, PreemptionRule
from shoal.policy.queueing.braid import Braid, Candidate, Disturbances, Step
from shoal.policy.queueing.queue_orders import Las, order_named
from shoal.policy.table.rows import Floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.replay.preemptive import Preemptive
    from shoal.lab.traces.values import TraceJob
    from shoal.policy.queueing.queue_orders import QueueOrder

INTERLEAVED: Final = {"muri-s": True, "muri-l": False}
"""Muri's own rules, and whether they know how long jobs run."""


class ByOrder(PreemptionRule):
    """Runs the jobs that fit, in an order. Of equal jobs the first stays first."""

    def __init__(self, order: QueueOrder) -> None:
        self._order = order

    def begin(self, jobs: Sequence[TraceJob]) -> None:
        """Keep nothing."""

    def choose(self, state: Preemptive, came: list[int]) -> dict[int, float]:
        """Sort all jobs anew, and place the ones that fit."""
        self._take_in(state, came)
        if not state.active:
            return {}
        chosen = np.array(state.active, np.int64)
        keys = self._order.key(state.columns.only(chosen), state.now / TICKS_PER_S)
        state.active = chosen[np.argsort(keys, kind="stable")].tolist()
        return dict.fromkeys(state.fitting(state.active), 1.0)

    def _take_in(self, state: Preemptive, came: list[int]) -> None:
        state.active += came


@final
class ByService(ByOrder):
    """Runs the jobs with least attained service; they sink when they reach a level."""

    def __init__(self, order: Las) -> None:
        super().__init__(order)
        self._las = order
        self._level: Floats = np.zeros(0)

    def begin(self, jobs: Sequence[TraceJob]) -> None:
        """Put all jobs on the first level."""
        self._level = np.zeros(len(jobs))

    def next_choice(self, state: Preemptive, running: Sequence[int]) -> float:
        """Return when the first running job reaches its next level of service."""
        levels, first = self._las.levels_slot_s, inf
        for job in running:
            level = int(self._level[job])
            if level < len(levels):
                reached_s = levels[level] / state.slots[job]
                if state.options.whole_seconds:
                    reached_s = ceil(reached_s)
                ticks = ceil(reached_s * TICKS_PER_S) - float(state.ran[job])
                first = min(first, state.now + ticks)
        return first

    def _take_in(self, state: Preemptive, came: list[int]) -> None:
        """Put jobs that reached a level behind the others there, and new ones last."""
        # Jobs that run are the first of their level.
        state.active.sort(key=lambda job: (self._level[job], state.speed[job] == 0.0))
        active = np.array(sorted(state.active), np.int64)
        levels = self._las.key(state.columns.only(active), 0.0)
        sunk = dict.fromkeys(active[levels > self._level[active]].tolist())
        self._level[active] = levels
        staying = [job for job in state.active if job not in sunk]
        state.active = [*staying, *sunk, *came]


@final
class Braided(PreemptionRule):
    """Runs groups of jobs that share GPUs, as `Braid` forms them."""

    def __init__(self) -> None:
        self._braid = Braid()
        self._disturbances = Disturbances()
        self._steps: list[Step] = []
        self._overhead: dict[int, float] = {}

    def begin(self, jobs: Sequence[TraceJob]) -> None:
        """Look up the steps of all jobs."""
        self._disturbances = Disturbances()
        self._steps = [step_of(job) for job in jobs]

    def choose(self, state: Preemptive, came: list[int]) -> dict[int, float]:
        """Form groups anew; return the speeds of jobs, alone or sharing."""
        if state.options.overheads == "at every event":
            self._disturbances.happened(state.now / TICKS_PER_S)
        state.active += came
        left = state.columns.remaining_s * state.columns.slots
        state.active.sort(key=lambda job: left[job])
        alone = dict.fromkeys(state.fitting(state.active))
        waiting = [job for job in state.active if job not in alone]
        candidates = {job: self._candidate(state, job) for job in state.active}
        unmet = candidates[waiting[0]] if waiting else None
        cluster = state.cluster()
        groups = self._braid.select(
            candidates.values(),
            lambda gpus: cluster.take(gpus) is not None,
            unmet,
            self._disturbances,
        )
        speeds: dict[int, float] = {}
        self._overhead = {}
        for group in groups:
            overhead = sum(float(state.overhead[job]) for job in group.members)
            for job, speed in zip(group.members, group.speeds, strict=True):
                speeds[job] = speed
                self._overhead[job] = overhead
        return speeds

    def overhead_of(self, state: Preemptive, job: int) -> float:
        """Return the overheads of the whole group: its members start together."""
        return self._overhead[job]

    def _candidate(self, state: Preemptive, job: int) -> Candidate:
        start_s = float(state.overhead[job]) / TICKS_PER_S
        return Candidate(job, state.slots[job], self._steps[job], start_s)


def rule_named(policy: str) -> PreemptionRule:
    """Return the rule of this name; raises `PolicyError` if there is none."""
    if policy.lower() == Braid.name:
        return Braided()
    if policy.lower() in INTERLEAVED:
        return Interleaved(lengths_known=INTERLEAVED[policy.lower()])
    order = order_named(policy)
    return ByService(order) if isinstance(order, Las) else ByOrder(order)
