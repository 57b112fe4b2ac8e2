"""Draw a scenario's jobs: when each arrives, at which host, and what it does."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.lab.datacentre.settings import JobKind
from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.model.job import Job, Retry
from shoal.sim.node.driver import Behaviour, Plans
from shoal.sim.workload import Errand, make_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.datacentre.services import ServiceKind
    from shoal.lab.datacentre.settings import ScenarioSettings

WARM_UP_S: Final = 5.0
"""Hosts boot and meet before the first job comes."""

OWNER: Final = OwnerId("ann")


class DrawnJob(msgspec.Struct, frozen=True):
    """One drawn job: its kind, its host, its start and its run time."""

    job: JobId
    kind: JobKind
    host: NodeId  # where it is submitted
    at_s: float
    run_s: float


class DrawnJobs(msgspec.Struct, frozen=True):
    """All jobs of one scenario. The same for every policy and overlay."""

    jobs: tuple[DrawnJob, ...]
    errands: tuple[Errand, ...]
    plans: Plans
    services: dict[JobId, ServiceKind] = {}

    @property
    def last_s(self) -> float:
        """When the last job comes."""
        return max(drawn_job.at_s for drawn_job in self.jobs)


def draw_jobs(
    settings: ScenarioSettings, hosts: Sequence[NodeId], rng: Random
) -> DrawnJobs:
    """Draw all jobs of a scenario."""
    chosen = rng.choices(
        settings.kinds,
        weights=[kind.weight for kind in settings.kinds],
        k=settings.jobs,
    )
    runs = [_draw_run_s(kind, rng) for kind in chosen]
    doors = [NodeId(name) for name in settings.submit_to] or list(hosts)
    times = _draw_times(settings, _span_s(settings, chosen, runs), rng)
    drawn: list[DrawnJob] = []
    errands: list[Errand] = []
    plans: Plans = {}
    for number, (kind, run_s, at_s) in enumerate(zip(chosen, runs, times, strict=True)):
        id_ = JobId(f"{kind.name}-{number}")
        door = rng.choice(doors)
        job = _job(id_, kind)
        drawn.append(DrawnJob(id_, kind, door, at_s, run_s))
        errands.append(Errand(job=job, scheduler=door, at_s=at_s))
        plans.update({task.id: Behaviour(run_s=run_s) for task in job.tasks()})
    services: dict[JobId, ServiceKind] = {}
    for number, service in enumerate(settings.services):
        id_ = JobId(f"{service.name}-service-{number}")
        door = doors[number % len(doors)]
        job = service.job(id_, OWNER)
        services[id_] = service
        drawn.append(DrawnJob(id_, _replicas(service), door, WARM_UP_S, service.run_s))
        errands.append(Errand(job=job, scheduler=door, at_s=WARM_UP_S))
        plans.update({t.id: Behaviour(run_s=service.run_s) for t in job.tasks()})
    return DrawnJobs(tuple(drawn), tuple(errands), plans, services)


def _replicas(service: ServiceKind) -> JobKind:
    """Return the replicas of a service as a kind of job, whose time no host changes."""
    return JobKind(
        name=service.name,
        weight=1.0,
        tasks=service.replicas,
        gang=False,
        profile=service.profile,
        gpus=0 if service.profile.gpu is None else service.profile.gpu.count,
        run_s=(service.run_s, service.run_s),
        stage_bytes=0,
        step_s=1.0,
        allreduce_bytes=0,
        priority=service.priority,
        preempt=service.preempt,
        same_leaf="no",
        timed=True,
    )


def _job(id_: JobId, kind: JobKind) -> Job:
    group = make_group(id_, "main", kind.tasks, (kind.profile,))
    if kind.gang:
        group = msgspec.structs.replace(group, gang_min=kind.tasks)
    return Job(
        id=id_,
        owner=OWNER,
        name=kind.name,
        groups=(group,),
        priority=kind.priority,
        preempt=kind.preempt,
        retry=Retry(max=10, on=("worker-lost",)),
        same_leaf=kind.same_leaf,
    )


def _draw_run_s(kind: JobKind, rng: Random) -> float:
    """Draw how long a job runs: short times as likely as long ones, in logarithms."""
    least, most = kind.run_s
    drawn = math.exp(rng.uniform(math.log(least), math.log(most)))
    return round(drawn, 3)  # Logarithms differ between machines in the last bits.


def _span_s(
    settings: ScenarioSettings,
    kinds: Sequence[JobKind],
    runs: Sequence[float],
) -> float:
    """Return the span of all arrivals, so that jobs load the hosts as asked."""
    if settings.over_s is not None:
        return settings.over_s
    if settings.hosts.devices_max and any(kind.gpus for kind in settings.kinds):
        work = sum(
            kind.tasks * kind.gpus * run_s
            for kind, run_s in zip(kinds, runs, strict=True)
        )
        return work / (settings.load * settings.hosts.work)
    work = sum(
        kind.tasks * kind.profile.cpu_milli * run_s
        for kind, run_s in zip(kinds, runs, strict=True)
    )
    cpu_milli = sum(
        settings.hosts[place].capacity.cpu_milli * settings.hosts[place].speed
        for place in range(len(settings.hosts))
    )
    return work / (settings.load * cpu_milli)


def _draw_times(settings: ScenarioSettings, span_s: float, rng: Random) -> list[float]:
    count = settings.jobs
    match settings.arrivals:
        case "burst":
            return [WARM_UP_S] * count
        case "every":
            return [WARM_UP_S + span_s * n / count for n in range(count)]
        case "poisson":
            # Given their number, the arrivals of a Poisson process are uniform.
            drawn = sorted(rng.random() for _ in range(count))
            return [round(WARM_UP_S + span_s * x, 6) for x in drawn]
