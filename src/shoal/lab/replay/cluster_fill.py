"""Fill a cluster with pods that never leave, as published with FGD."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec
import numpy as np

from shoal.errors import PolicyError, UsageError
from shoal.lab.replay.engine import replay
from shoal.lab.traces.transforms import at_demand, shuffled
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.policy.interface import Policy
from shoal.policy.placement import place
from shoal.policy.ranking.forage import Forage
from shoal.policy.ranking.fragmentation import TYPICAL_SHARE, Fgd
from shoal.policy.ranking.gradient import Typical
from shoal.policy.ranking.packing import GpuClustering, GpuPacking
from shoal.policy.ranking.ranking import RankedPolicy
from shoal.policy.ranking.rankings import BestFit, DotProduct, Uniform
from shoal.policy.ranking.sampling import Sampled
from shoal.policy.registry import BUILT_IN, Registry
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable, WorkerView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.lab.traces.values import Pod, TraceHost

MIB: Final = 1 << 20

Typed: TypeAlias = "Callable[[Typical], Policy]"

PUBLISHED: Final[Mapping[str, Typed]] = {
    "bestfit": lambda _: BestFit(),
    "best-fit": lambda _: BestFit(),
    "dotprod": lambda _: DotProduct(),
    "dot-product": lambda _: DotProduct(),
    "fgd": Fgd,
    "forage": Forage,
    "gpuclustering": lambda _: GpuClustering(),
    "gpu-clustering": lambda _: GpuClustering(),
    "gpupacking": lambda _: GpuPacking(),
    "gpu-packing": lambda _: GpuPacking(),
    "random": lambda _: Uniform(),
}
"""Policies by their names in papers and here. Typical pods are known from the whole
list, as in the paper, instead of learned on the way."""


class Fill(msgspec.Struct, frozen=True):
    """The outcome of one fill: one entry for each pod that came."""

    arrived_milli: tuple[int, ...]
    allocated_milli: tuple[int, ...]
    capacity_milli: int
    placed: int

    def allocation_pct(self, demand_pct: int) -> float:
        """Return the mean share of GPU in use at this level of arrived demand.

        The mean is over the pods at which the demand, rounded, was that; if there is
        none, since each is a large part of a small cluster, over the nearest.
        """
        arrived = 100 * np.array(self.arrived_milli) / self.capacity_milli
        here = np.rint(arrived) == demand_pct
        if not here.any():
            away = np.abs(arrived - demand_pct)
            here = away == away.min()
        allocated = np.array(self.allocated_milli)[here]
        return float(100 * allocated.mean() / self.capacity_milli)


def policy_named(name: str, typical: Typical, candidates: int | None) -> Policy:
    """Return a placement policy, by name; with `candidates`, it chooses among a sample.

    Raises `PolicyError` if there is none of this name.
    """
    wanted = name.lower()
    if wanted in PUBLISHED:
        policy = PUBLISHED[wanted](typical)
    else:
        policy = Registry().make(wanted if wanted in BUILT_IN else name)
    if candidates is None:
        return policy
    if not isinstance(policy, RankedPolicy):
        raise PolicyError(
            f"policy '{name}' cannot choose among sampled candidates",
            because="it has no ranking to compare them by",
        )
    return Sampled(policy, candidates)


def typical_pods(pods: Sequence[Pod]) -> Typical:
    """Return the most frequent needs that make up 95 % of the pods, without memory."""
    seen = Counter(_profile(pod, with_memory=False) for pod in pods)
    ranked = sorted(seen.items(), key=lambda item: (-item[1], repr(item[0])))
    typical: list[tuple[Profile, int]] = []
    covered = 0
    for profile, count in ranked:
        typical.append((profile, count))
        covered += count
        if covered >= TYPICAL_SHARE * len(pods):
            break
    return tuple(typical)


def fill(
    hosts: Sequence[TraceHost],
    pods: Sequence[Pod],
    policy: Policy,
    demand: float,
    seed: int,
) -> Fill:
    """Place pods one by one until `demand` times the cluster's GPUs were demanded.

    Hosts without GPUs do not take part. Hosts and pods are shuffled; of equal hosts
    the first in that order is chosen. A pod that does not fit is dropped for ever.
    """
    rng = Random(seed)
    with_gpus = sorted((h for h in hosts if h.gpus), key=lambda host: host.name)
    if not with_gpus or not pods:
        raise UsageError("there are no hosts with GPUs, or no pods to fill them")
    table = _table(shuffled(with_gpus, rng))
    capacity_milli = 1_000 * sum(host.gpus for host in with_gpus)
    arriving = shuffled(sorted(pods, key=lambda pod: pod.name), rng)
    arriving = at_demand(arriving, demand * capacity_milli, rng)
    filling = FillReplay(arriving, table, policy, rng)
    replay(range(len(arriving)), filling)
    arrived, allocated = tuple(filling.arrived), tuple(filling.allocated)
    return Fill(arrived, allocated, capacity_milli, filling.placed)


@final
class FillReplay:
    """Places pods as they come, one at a time; they never leave. See `Serving`."""

    arrivals_first = True

    def __init__(
        self, pods: Sequence[Pod], table: WorkerTable, policy: Policy, rng: Random
    ) -> None:
        self._pods = pods
        self._profiles = {pod: _profile(pod, with_memory=True) for pod in pods}
        self._table = table
        self._policy = policy
        self._rng = rng
        # GPU demanded and allocated, after each pod.
        self.arrived: list[int] = []
        self.allocated: list[int] = []
        self.placed = 0

    def is_done(self) -> bool:
        """Whether nothing waits: what does not fit is dropped."""
        return True

    def next_change(self) -> float:
        """Return that nothing ever ends."""
        return inf

    def advance(self, now: float) -> None:
        """Let time pass."""

    def arrive(self, job: int, now: float) -> None:
        """Place a pod, or drop it."""
        pod = self._pods[job]
        fits = self._place(self._profiles[pod])
        before = (self.arrived[-1], self.allocated[-1]) if job else (0, 0)
        self.arrived.append(before[0] + pod.gpu_milli_all)
        self.allocated.append(before[1] + pod.gpu_milli_all * fits)
        self.placed += fits

    def serve(self) -> None:
        """Do nothing: pods are placed as they arrive."""

    def _place(self, profile: Profile) -> bool:
        table, rng, policy = self._table, self._rng, self._policy
        if not isinstance(policy, Uniform):
            return bool(place(profile, 1, table, policy, rng).takens)
        # A worker takes its tightest GPU itself; FGD's Random draws the GPU, too.
        fitting = table.fitting(TaskShape(profile))
        need, index = fitting.need, policy.draw(fitting, rng)
        if index is None:
            return False
        places: Sequence[int] = ()
        if need.gpu is not None:
            places = rng.sample(table.row(index).fitting(need), need.gpus_min)
        table.book(index, need, places)
        return True


def _table(hosts: Sequence[TraceHost]) -> WorkerTable:
    table = WorkerTable()
    digits = len(str(len(hosts)))
    for number, host in enumerate(hosts):
        devices = tuple(Device(str(n), "", host.model) for n in range(host.gpus))
        memory = host.memory_mib * MIB
        capacity = Capacity(host.cpu_milli, memory, 0, devices)
        node = NodeId(f"{number:0{digits}d}")  # The order of names breaks ties.
        table.put(WorkerView.idle(node, capacity))
    return table


def _profile(pod: Pod, *, with_memory: bool) -> Profile:
    gpu = GpuNeed(pod.gpus, pod.gpus, pod.gpu_milli, models=pod.models)
    return Profile(
        pod.cpu_milli,
        pod.memory_mib * MIB if with_memory else 0,
        gpu=gpu if pod.gpus else None,
    )
