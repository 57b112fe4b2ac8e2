"""Muri's own rule, to compare with: jobs that share GPUs by maximum weight matching.

As its simulator has it (SIGCOMM 2022). The first jobs in order are taken, four times as
many of each size as there is room for; where they do not fit side by side, a matching
joins groups of the same size that leave the least of the GPUs' resources unused, round
by round. Muri-S orders by remaining service, Muri-L by attained service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

import rustworkx

from shoal.lab.replay.preemptive import PreemptionRule
from shoal.policy.queueing.braid import MEMBERS_MAX, SLOWED_BY_SHARING, Step, round_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.replay.preemptive import Preemptive
    from shoal.lab.traces.values import TraceJob

RESOURCES: Final = 4
ROUNDS: Final = 4
WEIGHT_UNITS: Final = 1_000_000_000
"""A weight of 1 in whole numbers, which the matching wants."""

Group: TypeAlias = list[int]
"""Jobs that share."""

Kinds: TypeAlias = tuple[int, ...]
"""Of each job that shares, which step it has: jobs of one kind are alike."""


@final
class Interleaved(PreemptionRule):
    """Runs groups of jobs as Muri-S does, or Muri-L if lengths are not known."""

    def __init__(self, *, lengths_known: bool) -> None:
        self._lengths_known = lengths_known
        self._steps: list[Step] = []  # by kind
        self._kinds: list[int] = []  # by job
        self._run_s: list[float] = []
        self._rounds: dict[Kinds, float] = {}
        self._overhead: dict[int, float] = {}

    def begin(self, jobs: Sequence[TraceJob]) -> None:
        """Look up the steps of all jobs."""
        steps = [step_of(job) for job in jobs]
        self._steps = sorted(set(steps))
        places = {step: place for place, step in enumerate(self._steps)}
        self._kinds = [places[step] for step in steps]
        self._rounds = {}
        self._run_s = [job.run_s for job in jobs]

    def overhead_of(self, state: Preemptive, job: int) -> float:
        """Return the overheads of the whole group: its members start together."""
        return self._overhead[job]

    def choose(self, state: Preemptive, came: list[int]) -> dict[int, float]:
        """Form groups anew; return the speeds of jobs, alone or sharing."""
        state.active += came
        order = {job: self._order_of(state, job) for job in state.active}
        state.active.sort(key=order.__getitem__)
        groups = self._joined(self._taken(state), state.cluster().slots)
        kept: list[tuple[float, Group, int]] = []
        for gpus, of_size in groups.items():
            for group in of_size:
                alone_s = sum(self._alone_s(job) for job in group)
                parts = (
                    [group] if self._took_s(group) <= alone_s else [[j] for j in group]
                )
                kept += [
                    (min(order[job] for job in part), part, gpus) for part in parts
                ]
        kept.sort(key=lambda each: each[0])
        cluster = state.cluster()
        fitting = [each for each in kept if cluster.take(each[2]) is not None]
        # What fits in this order need not fit with the largest first, as it is placed.
        places = {job: place for place, job in enumerate(state.active)}
        fitting.sort(key=lambda each: (-each[2], min(places[job] for job in each[1])))
        cluster = state.cluster()
        speeds: dict[int, float] = {}
        self._overhead = {}
        for _, group, gpus in fitting:
            if cluster.take(gpus) is None:
                continue
            overhead = sum(float(state.overhead[job]) for job in group)
            took_s = self._took_s(group)
            for job in group:
                speeds[job] = self._alone_s(job) / took_s
                self._overhead[job] = overhead
        return speeds

    def _order_of(self, state: Preemptive, job: int) -> float:
        if not self._lengths_known:
            return float(state.columns.served_slot_s[job])
        # Until a job has run, its simulator goes by the length that the trace tells.
        ran = state.ran[job] > 0
        left_s = float(state.columns.remaining_s[job]) if ran else self._run_s[job]
        return left_s * state.slots[job]

    def _taken(self, state: Preemptive) -> dict[int, list[Group]]:
        """Return the jobs that may run, by GPUs: four for each place that there is."""
        waiting: dict[int, list[int]] = {}
        for job in state.active:
            waiting.setdefault(state.slots[job], []).append(job)
        counts = dict.fromkeys(waiting, 0)
        passed = dict.fromkeys(waiting, 0)
        cluster = state.cluster()
        for job in state.active:
            gpus = state.slots[job]
            passed[gpus] += 1
            if passed[gpus] <= counts[gpus] or cluster.take(gpus) is None:
                continue
            counts[gpus] = min(counts[gpus] + MEMBERS_MAX, len(waiting[gpus]))
        return {g: [[j] for j in jobs[: counts[g]]] for g, jobs in waiting.items()}

    def _joined(
        self, groups: dict[int, list[Group]], gpus_all: int
    ) -> dict[int, list[Group]]:
        """Join groups until they fit side by side."""
        wanted = sum(gpus * len(of_size) for gpus, of_size in groups.items())
        for _ in range(ROUNDS):
            if wanted <= gpus_all:
                break
            joined: dict[int, list[Group]] = {}
            for gpus, of_size in groups.items():
                pairs = self._matching(of_size)
                listed = joined.setdefault(gpus, [])
                for place, group in enumerate(of_size):
                    other = pairs.get(place, place)
                    if other > place:
                        continue  # It comes with the other.
                    if other == place:
                        listed.append(group)
                    elif wanted <= gpus_all:
                        listed += [of_size[other], group]
                    else:
                        listed.append(of_size[other] + group)
                        wanted -= gpus
            groups = joined
        return groups

    def _matching(self, groups: list[Group]) -> dict[int, int]:
        kinds = [tuple(sorted(self._kinds[job] for job in group)) for group in groups]
        weights = {
            (one, other): self._weight((*one, *other))
            for one in dict.fromkeys(kinds)
            for other in dict.fromkeys(kinds)
            if len(one) + len(other) <= MEMBERS_MAX
        }
        edges = [
            (one, other, weights[kinds[one], kinds[other]])
            for one in range(len(groups))
            for other in range(one)
            if len(kinds[one]) + len(kinds[other]) <= MEMBERS_MAX
        ]
        graph: rustworkx.PyGraph[int, int] = rustworkx.PyGraph(multigraph=False)
        graph.add_nodes_from(range(len(groups)))
        graph.add_edges_from(edges)
        pairs = rustworkx.max_weight_matching(graph, weight_fn=int)
        return dict([*pairs, *((other, one) for one, other in pairs)])

    def _weight(self, kinds: Kinds) -> int:
        """Return which part of the resources would be in use."""
        used_s = sum(sum(self._steps[kind].stages) for kind in kinds)
        return round(WEIGHT_UNITS * used_s / (RESOURCES * self._round_s(kinds)))

    def _round_s(self, kinds: Kinds) -> float:
        """Return how long a step of each takes, if jobs of these kinds share."""
        if len(kinds) == 1:
            return self._steps[kinds[0]].alone_s
        kinds = tuple(sorted(kinds))
        if kinds not in self._rounds:
            slowed = SLOWED_BY_SHARING[len(kinds)]
            parts = [self._steps[kind].stages for kind in kinds]
            self._rounds[kinds] = slowed * round_s(parts)
        return self._rounds[kinds]

    def _took_s(self, group: Group) -> float:
        return self._round_s(tuple(self._kinds[job] for job in group))

    def _alone_s(self, job: int) -> float:
        return self._steps[self._kinds[job]].alone_s


def step_of(job: TraceJob) -> Step:
    """Return the step of a job; one of which nothing is known is all computing."""
    alone_s = job.step_ms / 1_000 if job.step_ms else 1.0
    load, compute, talk = job.stages_ms or (0.0, alone_s * 1_000, 0.0)
    return Step(alone_s, (load / 1_000, compute / 1_000, talk / 1_000))
