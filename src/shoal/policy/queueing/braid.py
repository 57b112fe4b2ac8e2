"""Braid: training jobs share GPUs when together they finish sooner.

A training step loads data, computes and talks to others, each on another resource.
Jobs whose steps take turns at these can share the same GPUs, each slower than alone
but all together faster. When does that pay, for a small mean completion time?

Jobs run in the order of the service that they still need. What is done of a job now
brings its own end forward, and the ends of all jobs behind it, since they come to the
GPUs so much sooner. So a second of a GPU that works on a job is worth as many seconds
of waiting as there are jobs from it on, and one that several jobs share is worth the
sum over them, each by its speed. How long the jobs are counts only for the order: a
long partner that would else wait for hours makes room for all who wait behind it.

GPUs have a price: what the first job that found none would give for them. A partner
joins only if the group is then worth more than the partner alone would be beyond its
price. When there are GPUs for all, the price is zero and no jobs share.

Starting costs time, and a group starts when its last member has. Where running jobs pay
for this whenever something happens, a group that takes h seconds to start runs only in
what is left of each pause between two events beyond its first h seconds. So jobs that
are slow to start share less, the more often they are disturbed. How long pauses are is
learned on the way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from itertools import accumulate, permutations
from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MEMBERS_MAX: Final = 4
"""Jobs that share the same GPUs at most."""

PAUSES_MAX: Final = 4_096
"""Pauses between events that are remembered; the latest count."""

BEATS: Final = 4
"""A round of a group: in each beat every job does another part of its step."""

SLOWED_BY_SHARING: Final = {1: 1.0, 2: 1.33 / 1.015, 3: 1.5 / 1.015, 4: 1.37 / 1.015}
"""How much longer a round takes than its parts, by members, as measured with Muri."""

Stages: TypeAlias = tuple[float, float, float]
"""Seconds of one step that go to loading, computing and communication."""


class Step(msgspec.Struct, frozen=True, order=True):
    """One training step: how long it takes alone, and its parts."""

    alone_s: float
    stages: Stages


class Candidate(msgspec.Struct, frozen=True):
    """A job that could run now."""

    id: int
    gpus: int
    step: Step
    start_s: float = 0.0  # how long it takes to start


class SharingGroup(msgspec.Struct, frozen=True):
    """Jobs on the same GPUs, and the speed of each, 1 being that of running alone."""

    members: tuple[int, ...]
    speeds: tuple[float, ...]


Fits: TypeAlias = "Callable[[int], bool]"
"""Takes this many GPUs if a job could get them now, and says whether it could."""


def round_s(stages: Sequence[Stages]) -> float:
    """Return how long one step of each of these jobs takes, if they take turns.

    In a beat one job talks, the next computes, and the third ends loading, which it
    had two beats for: data are read, then prepared, by different parts of a host. The
    best order of the jobs counts.
    """
    best = min(_rotation_s(order) for order in permutations(stages))
    if len(stages) == 2:
        (load, compute, talk), (load2, compute2, talk2) = stages
        best = min(best, max(load, compute2 + talk2) + max(load2, compute + talk))
    return best


def _rotation_s(jobs: Sequence[Stages]) -> float:
    """Return the length of a round in this order, once it has settled."""
    ends = [0.0]
    for beat in range(2 * BEATS):
        end = 0.0
        talking, computing, loading = ((beat + n) % BEATS for n in (1, 2, 3))
        if talking < len(jobs):
            end = max(end, ends[beat] + jobs[talking][2])
        if computing < len(jobs):
            end = max(end, ends[beat] + jobs[computing][1])
        if beat > 0 and loading < len(jobs):
            end = max(end, ends[beat - 1] + jobs[loading][0])
        ends.append(end)
        settled = beat >= BEATS and _close(
            ends[-1] - ends[-1 - BEATS], ends[-2] - ends[-2 - BEATS]
        )
        if settled and ends[-1] > ends[-1 - BEATS]:
            return ends[-1] - ends[-1 - BEATS]
    return ends[2 * BEATS] - ends[BEATS]


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-3 * max(abs(one), abs(other))


@final
class Disturbances:
    """Events after which all running jobs must start again, and the pauses between."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque()  # pauses, in seconds, the oldest first
        self._sorted: list[float] = []  # the same
        self._sums: list[float] = []  # of the shortest ones, or empty if not known
        self._last_s: float | None = None

    def happened(self, now: float) -> None:
        """Take in one event."""
        if self._last_s is not None and now > self._last_s:
            self._latest.append(now - self._last_s)
            insort(self._sorted, self._latest[-1])
            if len(self._latest) > PAUSES_MAX:
                oldest_s = self._latest.popleft()
                del self._sorted[bisect_left(self._sorted, oldest_s)]
            self._sums = []
        self._last_s = now

    def running_share(self, start_s: float) -> float:
        """Return in which part of the time a group that starts so slowly would run."""
        if not self._sorted:
            return 1.0
        if not self._sums:
            self._sums = list(accumulate(self._sorted, initial=0.0))
        shorter = bisect_left(self._sorted, start_s)
        longer = len(self._sorted) - shorter
        left_s = self._sums[-1] - self._sums[shorter] - longer * start_s
        return left_s / self._sums[-1]


@final
class Braid:
    """Forms groups of jobs that share GPUs; remembers speeds of kinds of jobs."""

    name = "braid"

    def __init__(self, members_max: int = MEMBERS_MAX) -> None:
        assert 1 <= members_max <= MEMBERS_MAX
        self._members_max = members_max
        self._speeds: dict[tuple[Step, ...], dict[Step, float]] = {}
        self._disturbances = Disturbances()
        self._waiting: dict[int, int] = {}  # of each job, how many there are from it on

    def speeds(self, steps: Sequence[Step]) -> list[float]:
        """Return how fast each of these would be if they shared, 1 being alone."""
        if len(steps) == 1:
            return [1.0]
        kinds = tuple(sorted(steps))
        known = self._speeds.get(kinds)
        if known is None:
            slowed = SLOWED_BY_SHARING[len(kinds)]
            together_s = slowed * round_s([step.stages for step in kinds])
            known = {step: step.alone_s / max(together_s, 1e-9) for step in kinds}
            self._speeds[kinds] = known
        return [known[step] for step in steps]

    def select(
        self,
        waiting: Iterable[Candidate],
        fits: Fits,
        unmet: Candidate | None,
        disturbances: Disturbances | None = None,
    ) -> list[SharingGroup]:
        """Choose jobs to run now, and which share a worker, until no other fits.

        `unmet` is the first job that would have to wait if no jobs shared, or None if
        there is none. Jobs must come in order of remaining time times GPUs. At each of
        the `disturbances` running jobs must start again.
        """
        self._disturbances = disturbances or Disturbances()
        jobs = list(waiting)
        self._waiting = {job.id: len(jobs) - n for n, job in enumerate(jobs)}
        price = 0.0 if unmet is None else self._worth([unmet]) / unmet.gpus
        partners = _Partners(jobs)
        groups: list[SharingGroup] = []
        for job in jobs:
            if partners.is_taken(job) or not fits(job.gpus):
                continue
            partners.take(job)
            members = [job]
            if unmet is not None:
                self._extend(members, partners, price * job.gpus)
            speeds = self.speeds([member.step for member in members])
            groups.append(SharingGroup(tuple(m.id for m in members), tuple(speeds)))
        return groups

    def _extend(
        self, members: list[Candidate], partners: _Partners, price: float
    ) -> None:
        """Add partners as long as the group gains by it, dearest first."""
        worth = self._worth(members)
        while len(members) < self._members_max:
            best, best_gain = None, 0.0
            for partner in partners.smallest_of_each_kind(members[0].gpus):
                # Alone it would be worth what it gains beyond the price of its GPUs.
                alone = max(0.0, self._worth([partner]) - price)
                gain = self._worth([*members, partner]) - worth - alone
                if gain > best_gain:
                    best, best_gain = partner, gain
            if best is None:
                return
            members.append(best)
            partners.take(best)
            worth = self._worth(members)

    def _worth(self, members: Sequence[Candidate]) -> float:
        """Return how many seconds of waiting are saved in a second, times all GPUs."""
        speeds = self.speeds([member.step for member in members])
        pairs = zip(members, speeds, strict=True)
        runs = self._disturbances.running_share(sum(m.start_s for m in members))
        saved = sum(speed * self._waiting[member.id] for member, speed in pairs)
        return runs * members[0].gpus * saved


@final
class _Partners:
    """Jobs by number of GPUs and kind; in each kind the one that ends first is first.

    Of jobs of one kind no other could be the better partner.
    """

    def __init__(self, jobs: Iterable[Candidate]) -> None:
        self._taken: dict[int, None] = {}
        self._queues: dict[int, dict[Step, list[Candidate]]] = defaultdict(dict)
        for job in jobs:
            self._queues[job.gpus].setdefault(job.step, []).append(job)
        for kinds in self._queues.values():
            for queue in kinds.values():
                queue.reverse()  # The first is now the cheapest to take out.

    def is_taken(self, job: Candidate) -> bool:
        return job.id in self._taken

    def take(self, job: Candidate) -> None:
        self._taken[job.id] = None

    def smallest_of_each_kind(self, gpus: int) -> Iterable[Candidate]:
        for queue in self._queues[gpus].values():
            while queue and queue[-1].id in self._taken:
                queue.pop()
            if queue:
                yield queue[-1]
