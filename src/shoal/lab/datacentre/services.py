"""Inference services: requests that come at random to replicas with bounded queues.

A service is a job whose tasks are replicas. The world says when each ran, and on which
host; requests then are drawn and served, without messages:

- Requests come at random, at `rate` a second, and `peak` times as often in the middle
  of the time in which the service runs.
- One goes to the replica that has the fewest to do. A replica works on `at_once` of
  them, each for about `takes` at speed 1 (exponentially distributed); `queue` more
  wait. When all replicas are full, the request is refused: that is overload.
- A replica that ends with work to do loses it; so is a request lost when there is no
  replica at all.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from shoal.model.job import Job, Retry
from shoal.model.resources import Profile
from shoal.sim.workload import make_group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from shoal.model.ids import JobId, OwnerId


class ServiceKind(msgspec.Struct, frozen=True, kw_only=True):
    """A service, in numbers."""

    name: str
    replicas: int
    profile: Profile
    run_s: float
    rate: float
    peak: float
    takes_s: float
    at_once: int
    queue: int
    within_s: float
    priority: int
    preempt: bool

    def job(self, id_: JobId, owner: OwnerId) -> Job:
        """Return the job that runs the replicas."""
        return Job(
            id=id_,
            owner=owner,
            name=self.name,
            groups=(make_group(id_, "main", self.replicas, (self.profile,)),),
            priority=self.priority,
            preempt=self.preempt,
            retry=Retry(max=10, on=("worker-lost",)),
        )


class Replica(msgspec.Struct, frozen=True):
    """When a replica ran, and how fast its host is."""

    began: float
    ended: float
    speed: float


class ServiceResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the requests of a service."""

    name: str
    requests: int
    answered: int
    refused: int  # every queue was full
    lost: int  # there was no replica, or it ended before the answer
    late: int  # of those answered
    latency_p50_s: float
    latency_p99_s: float
    busy: float  # share of the replicas' time in which they worked


class _Serving(msgspec.Struct, eq=False):
    """A replica while requests are served: when each of its places is free again."""

    replica: Replica
    places: list[float]
    ends: list[float] = []  # of what it works on and what waits

    def load(self, now: float) -> int:
        while self.ends and self.ends[0] <= now:
            heappop(self.ends)
        return len(self.ends)


def serve(
    kind: ServiceKind, replicas: Sequence[Replica], since: float, rng: Random
) -> ServiceResult:
    """Draw the requests of a service that was submitted at `since`, and serve them."""
    serving = [_Serving(each, [each.began] * kind.at_once, []) for each in replicas]
    latencies: list[float] = []
    refused = lost = 0
    busy_s = 0.0
    for came in _arrivals(kind, since, rng):
        takes_s = rng.expovariate(1.0 / kind.takes_s)
        up = [s for s in serving if s.replica.began <= came < s.replica.ended]
        if not up:
            lost += 1
            continue
        least = min(up, key=lambda each: each.load(came))
        if len(least.ends) >= kind.at_once + kind.queue:
            refused += 1
            continue
        free = heappop(least.places)
        begins = max(came, free)
        ends = begins + takes_s / least.replica.speed
        heappush(least.places, ends)
        heappush(least.ends, ends)
        busy_s += max(0.0, min(ends, least.replica.ended) - begins)
        if ends > least.replica.ended:
            lost += 1
        else:
            latencies.append(ends - came)
    latencies.sort()
    up_s = sum(each.ended - each.began for each in replicas)
    return ServiceResult(
        name=kind.name,
        requests=len(latencies) + refused + lost,
        answered=len(latencies),
        refused=refused,
        lost=lost,
        late=sum(each > kind.within_s for each in latencies),
        latency_p50_s=_at(latencies, 0.5),
        latency_p99_s=_at(latencies, 0.99),
        busy=busy_s / (up_s * kind.at_once) if up_s else 0.0,
    )


def _arrivals(kind: ServiceKind, since: float, rng: Random) -> list[float]:
    """Return when requests come: a Poisson process whose rate goes up and down."""
    # The rate goes from its least at both ends to `peak` times as much in the middle.
    least = 2 * kind.rate / (1 + kind.peak)
    most = least * kind.peak
    found: list[float] = []
    now = 0.0
    while (now := now + rng.expovariate(most)) < kind.run_s:
        height = 1 - abs(2 * now / kind.run_s - 1)
        if rng.random() * most < least + (most - least) * height:
            found.append(since + now)
    return found


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
