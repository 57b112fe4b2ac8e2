"""Who gets which GPUs, decided anew every round.

A *choice* is a kind of GPU and a number of them. Policies:

- `sia`: what Sia does (SOSP '23). Of all choices for all jobs those are wanted whose
  goodputs, each by the least that the job could have, give the smallest sum of their
  powers -1/2; a job that waits counts 1.1. A job begins on one GPU and at most doubles
  in a round. Another choice than the present one is discounted by what restarting
  would cost. Sia solves this as an integer program. Here the best step is taken, GPU by
  GPU, until none helps: the sum is concave in goodput, so that comes close.
- `las`: jobs have the GPUs and the batch that they ask for. Those that had less than
  one GPU hour go first, then those with less than ten (Tiresias), each on the kind on
  which it learns fastest among those with room.
- `fifo`: likewise, first come first served, and what runs is not stopped.
- `blind`: likewise, on the kind with most room, however fast it is.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from shoal.lab.elastic.goodput import (
    PROGRAMS,
    GpuKind,
    best_goodput,
    goodput,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.lab.elastic.jobs import ElasticJob

FAIRNESS: Final = -0.5
WAITING: Final = 1.1
NOTHING: Final = -1
LEVELS_GPU_S: Final = (3_600.0, 36_000.0)


class Choice(NamedTuple):
    """Some GPUs of one kind."""

    kind: int
    gpus: int


class JobState(msgspec.Struct):
    """A job that has come and not ended."""

    job: ElasticJob
    left: float  # samples, by what they teach
    came_s: float
    choice: Choice | None = None
    paused_s: float = 0.0  # of restarting, still to pay
    restarts: int = 0
    gpu_s: float = 0.0


Allocation = dict[str, Choice]


@cache
def choices_of(cluster: tuple[GpuKind, ...]) -> tuple[Choice, ...]:
    """Return all choices there are."""
    return tuple(
        Choice(place, size) for place, kind in enumerate(cluster) for size in kind.sizes
    )


@cache
def elastic_rates(program: str, cluster: tuple[GpuKind, ...]) -> tuple[float, ...]:
    """Return the goodput of a program with each choice."""
    return tuple(
        best_goodput(program, cluster[choice.kind], choice.gpus)
        for choice in choices_of(cluster)
    )


@cache
def rigid_rate(program: str, kind: GpuKind, gpus: int, batch: int) -> float:
    """Return the goodput of a job that keeps to what it asked for."""
    return goodput(program, kind, gpus, batch)


def sia(
    states: Sequence[JobState], cluster: tuple[GpuKind, ...], now_s: float
) -> Allocation:
    """Allocate by Sia's objective, step by step."""
    if not states:
        return {}
    choices = choices_of(cluster)
    costs = np.stack([_costs(state, cluster, now_s) for state in states])
    sizes = np.array([choice.gpus for choice in choices])
    kinds = np.array([choice.kind for choice in choices])
    free = np.array([kind.gpus for kind in cluster])
    chosen = np.full(len(states), NOTHING)
    cost = np.full(len(states), WAITING)
    while True:
        # What a job gives back when it moves can be used by its next choice.
        back = np.zeros((len(states), len(choices)), int)
        has = chosen != NOTHING
        own_kinds, own_sizes = kinds[chosen[has]], sizes[chosen[has]]
        same = kinds[None, :] == own_kinds[:, None]
        back[has] = same * own_sizes[:, None]
        fits = sizes[None, :] <= free[kinds][None, :] + back
        gain = (cost[:, None] - costs) / np.maximum(1, sizes[None, :] - back)
        gain[~fits] = -np.inf
        place = int(np.argmax(gain))
        job, choice = divmod(place, len(choices))
        if gain[job, choice] <= 1e-12:
            break
        if chosen[job] != NOTHING:
            free[kinds[chosen[job]]] += sizes[chosen[job]]
        free[kinds[choice]] -= sizes[choice]
        chosen[job], cost[job] = choice, costs[job, choice]
    return {
        state.job.name: choices[choice]
        for state, choice in zip(states, chosen.tolist(), strict=True)
        if choice != NOTHING
    }


def total_cost(
    states: Sequence[JobState],
    cluster: tuple[GpuKind, ...],
    now_s: float,
    allocation: Allocation,
) -> float:
    """Return the value of Sia's objective for an allocation; less is better."""
    choices = choices_of(cluster)
    found = 0.0
    for state in states:
        choice = allocation.get(state.job.name)
        if choice is None:
            found += WAITING
        else:
            found += float(_costs(state, cluster, now_s)[choices.index(choice)])
    return found


def _costs(
    state: JobState, cluster: tuple[GpuKind, ...], now_s: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return what each choice counts for a job; infinity if it may not be."""
    choices = choices_of(cluster)
    rates = np.array(elastic_rates(state.job.program, cluster))
    rates /= rates[[choice.gpus == 1 for choice in choices]].min()
    age_s = now_s - state.came_s
    restart_s = PROGRAMS[state.job.program].restart_s
    keeps = max(0.01, (age_s - state.restarts * restart_s) / (age_s + restart_s))
    current = state.choice
    if current is not None:
        others = np.array([choice != current for choice in choices])
        rates[others] *= keeps
    most = 1 if current is None else 2 * current.gpus
    costs: np.ndarray[tuple[int], np.dtype[np.float64]] = rates**FAIRNESS
    costs[[choice.gpus > most for choice in choices]] = np.inf
    return costs


def las(
    states: Sequence[JobState], cluster: tuple[GpuKind, ...], _now_s: float
) -> Allocation:
    """Let those with little GPU time go first, on the kind that suits them."""

    def place(state: JobState) -> tuple[int, bool, float]:
        level = sum(state.gpu_s >= each for each in LEVELS_GPU_S)
        return level, state.choice is None, state.came_s

    order = sorted(states, key=place)
    return _in_order(order, cluster, _fastest)


def fifo(
    states: Sequence[JobState], cluster: tuple[GpuKind, ...], _now_s: float
) -> Allocation:
    """Let what runs go on, then who came first, on the kind that suits them."""
    return _in_order(_by_arrival(states), cluster, _fastest)


def blind(
    states: Sequence[JobState], cluster: tuple[GpuKind, ...], _now_s: float
) -> Allocation:
    """Let what runs go on, then who came first, on the kind with most room."""
    return _in_order(_by_arrival(states), cluster, _roomiest)


POLICIES: Final = {"sia": sia, "las": las, "fifo": fifo, "blind": blind}


def _by_arrival(states: Sequence[JobState]) -> list[JobState]:
    return sorted(states, key=lambda state: (state.choice is None, state.came_s))


def _in_order(
    order: Sequence[JobState],
    cluster: tuple[GpuKind, ...],
    prefer: Callable[[JobState, GpuKind, int], float],
) -> Allocation:
    free = [kind.gpus for kind in cluster]
    found: Allocation = {}
    for state in order:
        gpus = state.job.gpus
        if state.choice is not None and free[state.choice.kind] >= gpus:
            place = state.choice.kind
        else:
            fitting = [n for n in range(len(cluster)) if free[n] >= gpus]
            if not fitting:
                continue
            place = max(fitting, key=lambda n: prefer(state, cluster[n], free[n]))
        free[place] -= gpus
        found[state.job.name] = Choice(place, gpus)
    return found


def _fastest(state: JobState, kind: GpuKind, _: int) -> float:
    job = state.job
    return rigid_rate(job.program, kind, job.gpus, job.batch)


def _roomiest(_: JobState, __: GpuKind, free: int) -> float:
    return free
