"""Replay elastic jobs in rounds: allocate, let all learn for a while, and again."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.errors import UsageError
from shoal.lab.elastic.allocation import (
    POLICIES,
    JobState,
    choices_of,
    elastic_rates,
    rigid_rate,
)
from shoal.lab.elastic.goodput import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.lab.elastic.allocation import Choice
    from shoal.lab.elastic.goodput import GpuKind
    from shoal.lab.elastic.jobs import ElasticJob

ROUND_S: Final = 60.0
ROUNDS_MAX: Final = 1_000_000


class ElasticResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy made of a workload."""

    policy: str
    jobs: int
    completion_mean_h: float
    completion_p99_h: float
    makespan_h: float
    gpu_hours: float  # of a job, on average
    restarts: float  # likewise
    waiting_max: int  # jobs without any GPU, at most


def replay_elastic(
    jobs: Sequence[ElasticJob],
    cluster: tuple[GpuKind, ...],
    policy: str,
    told: Callable[[int], None] = lambda _ended: None,
) -> ElasticResult:
    """Replay a workload under a policy; `told` hears how many jobs have ended."""
    _require_room(jobs, cluster, policy)
    allocate, is_elastic = POLICIES[policy], policy == "sia"
    coming = list(reversed(jobs))
    states: list[JobState] = []
    ended: list[tuple[JobState, float]] = []
    waiting_max = 0
    now_s = jobs[0].at_s
    for _ in range(ROUNDS_MAX):
        if not coming and not states:
            break
        if not states:
            now_s = max(now_s, ROUND_S * ceil(coming[-1].at_s / ROUND_S))
        while coming and coming[-1].at_s <= now_s:
            job = coming.pop()
            states.append(JobState(job, PROGRAMS[job.program].samples, job.at_s))
        allocation = allocate(states, cluster, now_s)
        waiting_max = max(waiting_max, len(states) - len(allocation))
        still: list[JobState] = []
        for state in states:
            _move(state, allocation.get(state.job.name))
            end_s = _learn(state, cluster, now_s, is_elastic=is_elastic)
            if end_s is None:
                still.append(state)
            else:
                ended.append((state, end_s))
        states = still
        now_s += ROUND_S
        told(len(ended))
    times_h = sorted((end_s - state.came_s) / 3_600 for state, end_s in ended)
    return ElasticResult(
        policy=policy,
        jobs=len(ended),
        completion_mean_h=sum(times_h) / len(times_h),
        completion_p99_h=times_h[min(len(times_h) - 1, int(0.99 * len(times_h)))],
        makespan_h=(max(end_s for _, end_s in ended) - jobs[0].at_s) / 3_600,
        gpu_hours=sum(state.gpu_s for state, _ in ended) / 3_600 / len(ended),
        restarts=sum(state.restarts for state, _ in ended) / len(ended),
        waiting_max=waiting_max,
    )


def _move(state: JobState, choice: Choice | None) -> None:
    """Give a job other GPUs; to start again takes time."""
    if choice == state.choice:
        return
    if choice is not None:
        begun = state.gpu_s > 0
        state.restarts += begun
        state.paused_s = PROGRAMS[state.job.program].restart_s if begun else 0.0
    state.choice = choice


def _learn(
    state: JobState, cluster: tuple[GpuKind, ...], now_s: float, *, is_elastic: bool
) -> float | None:
    """Let a job learn for a round; return when it ends, if it does."""
    choice, job = state.choice, state.job
    if choice is None:
        return None
    if is_elastic:
        place = choices_of(cluster).index(choice)
        rate = elastic_rates(job.program, cluster)[place]
    else:
        rate = rigid_rate(job.program, cluster[choice.kind], job.gpus, job.batch)
    paused_s = min(ROUND_S, state.paused_s)
    state.paused_s -= paused_s
    needs_s = state.left / rate
    used_s = min(ROUND_S, paused_s + needs_s)
    state.gpu_s += used_s * choice.gpus
    state.left -= (used_s - paused_s) * rate
    return now_s + used_s if paused_s + needs_s <= ROUND_S else None


def _require_room(
    jobs: Sequence[ElasticJob], cluster: tuple[GpuKind, ...], policy: str
) -> None:
    if not jobs:
        raise UsageError("there are no jobs to replay")
    most = max(kind.gpus for kind in cluster)
    if policy == "sia":
        return
    for job in jobs:
        if job.gpus > most:
            raise UsageError(
                f"job {job.name} can never run under {policy}",
                because=f"it asks for {job.gpus} GPUs of one kind; there are {most}",
                hint="give more GPUs of a kind, or `--policy sia`",
            )
