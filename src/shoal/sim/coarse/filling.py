"""Filling a cluster with pods that come and never leave, as published with FGD."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from shoal.errors import PolicyError, UsageError
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.policy.forage import Forage
from shoal.policy.fragmentation import TYPICAL_SHARE, Fgd
from shoal.policy.gradient import Typical
from shoal.policy.packing import GpuClustering, GpuPacking
from shoal.policy.placement import Policy, place
from shoal.policy.rankings import BestFit, DotProduct, Uniform
from shoal.policy.registry import BUILT_IN, Registry
from shoal.policy.sampling import Sampled
from shoal.policy.shapes import Need, Shape
from shoal.policy.workers import WorkerTable, WorkerView
from shoal.sim.traces.shaping import at_demand, shuffled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.sim.traces.values import Host, Pod

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
"""Policies by their names in papers and here; those that know what is typical get it
from the whole list of pods, as in the paper, instead of learning it on the way."""


class Fill(msgspec.Struct, frozen=True):
    """What came of filling a cluster once: one entry for each pod that came."""

    arrived_milli: tuple[int, ...]
    allocated_milli: tuple[int, ...]
    capacity_milli: int
    placed: int

    def allocation_pct(self, demand_pct: int) -> float:
        """Return the mean share of GPU in use while so much demand had arrived.

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
    """Return a placement policy; among so many sampled candidates if a number is given.

    Raises `PolicyError` if there is none of this name.
    """
    wanted = name.lower()
    if wanted in PUBLISHED:
        policy = PUBLISHED[wanted](typical)
    else:
        policy = Registry().make(wanted if wanted in BUILT_IN else name)
    if candidates is None:
        return policy
    if isinstance(policy, Uniform) or not hasattr(policy, "key"):
        raise PolicyError(
            f"policy '{name}' cannot choose among sampled candidates",
            because="it has no ranking to compare them by",
        )
    return Sampled(policy, candidates)  # type: ignore[arg-type]  # It has a key.


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
    hosts: Sequence[Host], pods: Sequence[Pod], policy: Policy, demand: float, seed: int
) -> Fill:
    """Place pods one by one until so much GPU was demanded, `demand` being a factor.

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
    profiles = {pod: _profile(pod, with_memory=True) for pod in pods}
    arrived = allocated = placed = 0
    arrivals: list[int] = []
    allocations: list[int] = []
    for pod in arriving:
        arrived += pod.gpu_milli_all
        if _placed(profiles[pod], table, policy, rng):
            allocated += pod.gpu_milli_all
            placed += 1
        arrivals.append(arrived)
        allocations.append(allocated)
    return Fill(tuple(arrivals), tuple(allocations), capacity_milli, placed)


def _placed(profile: Profile, table: WorkerTable, policy: Policy, rng: Random) -> bool:
    if isinstance(policy, Uniform):
        return _placed_anywhere(table.need(Shape(profile)), table, policy, rng)
    return bool(place(profile, 1, table, policy, rng).takens)


def _placed_anywhere(
    need: Need, table: WorkerTable, policy: Uniform, rng: Random
) -> bool:
    """Place on any host, and on any of its GPUs: a worker takes the tightest itself."""
    index = policy.choose(need, table.grid, rng, ())
    if index is None:
        return False
    places: list[int] | None = None
    if need.gpu is not None:
        places = rng.sample(table.row(index).fitting(need), need.gpus_min)
    table.book(index, need, places)
    return True


def _table(hosts: Sequence[Host]) -> WorkerTable:
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
