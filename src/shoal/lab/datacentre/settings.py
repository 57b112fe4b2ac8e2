"""A parsed scenario: every amount in numbers, every name checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET

from shoal.errors import SpecError, UsageError
from shoal.lab.datacentre.fabrics import build_fabric
from shoal.lab.datacentre.host_kinds import (
    DealtHosts,
    HostKind,
    deal_hosts,
    relinked,
)
from shoal.lab.datacentre.scenario import (
    Amount,
    CableSpec,
    EventSpec,
    JobsSpec,
    OverlayName,
    Scenario,
    ScenarioJobs,
    ScenarioServices,
)
from shoal.lab.datacentre.services import ServiceKind
from shoal.model.gpu import parse_gpu
from shoal.model.resources import Capacity, Ledger, Profile
from shoal.model.spec.canonical import at
from shoal.model.units import parse_cpu, parse_duration, parse_size, parse_whole
from shoal.policy.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.topology.fabric import Fabric

T = TypeVar("T")

HOSTS_MAX: Final = 20_000
"""Hosts in one world: each is a whole node, of some tens of kilobytes."""

ALL: Final = "all"
"""In place of policies: every one that there is."""

Arrivals = Literal["poisson", "burst", "every"]
ARRIVALS: Final[tuple[Arrivals, ...]] = ("poisson", "burst", "every")
What = Literal["fail", "join", "leave"]


class JobKind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of job, in numbers."""

    name: str
    weight: float
    tasks: int
    gang: bool
    profile: Profile
    gpus: int  # of one task
    run_s: tuple[float, float]
    stage_bytes: int
    step_s: float
    allreduce_bytes: int
    priority: int
    preempt: bool
    same_leaf: Literal["no", "prefer", "require"]
    checkpoint_s: float | None = None  # time between two checkpoints of a gang
    speeds: dict[str, float] = {}  # by model of GPU, instead of the hosts' own
    timed: bool = False  # it runs as long on any host

    def speed_on(self, host: HostKind) -> float:
        """How fast such a job is on a host."""
        return 1.0 if self.timed else self.speeds.get(host.model, host.speed)


class PlannedFault(msgspec.Struct, frozen=True):
    """A part of the fabric fails, a host joins or a host leaves."""

    at_s: float
    what: What
    name: str
    for_s: float | None = None


class ScenarioSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run needs besides its policy and overlay."""

    name: str
    seed: int
    hosts: DealtHosts
    arrivals: Arrivals
    jobs: int
    load: float
    over_s: float | None
    submit_to: tuple[str, ...]  # hosts by name; none: any
    kinds: tuple[JobKind, ...]
    services: tuple[ServiceKind, ...] = ()
    policies: tuple[str, ...]
    overlays: tuple[OverlayName, ...]
    interval_s: float
    fan_out: int
    repeats: int
    nearest: int
    known: int
    loss: float
    planned_faults: tuple[PlannedFault, ...]
    churn_every_s: float | None
    churn_down_s: float
    until_s: float | None


def resolve(scenario: Scenario, folder: Path) -> tuple[ScenarioSettings, Fabric]:
    """Return the numbers and the fabric; raise `SpecError` with the path of a fault."""
    fabric = build_fabric(scenario.fabric, folder, cable_of=_cable)
    fabric = relinked(fabric, scenario.hosts, _cable)
    if len(fabric.hosts) > HOSTS_MAX:
        raise SpecError(
            f"{len(fabric.hosts)} hosts are too many for the message-level world",
            path="$.fabric",
            because=f"the most is {HOSTS_MAX}",
            hint="`shoal sim traces` replays larger clusters, without messages",
        )
    hosts = deal_hosts(scenario, len(fabric.hosts))
    jobs = scenario.jobs
    arrivals, count = _arrivals(jobs.arrivals)
    overlay = scenario.gossip.overlay
    churn = scenario.churn
    settings = ScenarioSettings(
        name=scenario.name,
        seed=scenario.seed,
        hosts=hosts,
        arrivals=arrivals,
        jobs=count,
        load=jobs.load,
        over_s=_maybe("$.jobs.over", parse_duration, jobs.over),
        submit_to=_submit_to(jobs, fabric),
        kinds=tuple(_kind(f"$.jobs.mix[{n}]", spec) for n, spec in enumerate(jobs.mix)),
        services=tuple(
            _service(f"$.services[{n}]", spec)
            for n, spec in enumerate(scenario.services)
        ),
        policies=_policies(scenario.policies),
        overlays=(overlay,) if isinstance(overlay, str) else overlay,
        interval_s=at("$.gossip.interval", parse_duration, scenario.gossip.interval),
        fan_out=scenario.gossip.fan_out,
        repeats=scenario.gossip.repeats,
        nearest=scenario.gossip.nearest,
        known=scenario.gossip.known,
        loss=scenario.loss,
        planned_faults=tuple(
            _happening(f"$.events[{n}]", event, fabric)
            for n, event in enumerate(scenario.events)
        ),
        churn_every_s=_maybe(
            "$.churn.every", parse_duration, churn.every if churn else None
        ),
        churn_down_s=at("$.churn.down", parse_duration, churn.down if churn else "0s"),
        until_s=_maybe("$.until", parse_duration, scenario.until),
    )
    _require_room(settings, fabric)
    return settings, fabric


def parse_bandwidth(amount: Amount) -> int:
    """Return bits per second of `25Gbps`, `100 Gbit/s` or `10Mbps`."""
    text = str(amount).strip()
    low = text.lower().replace(" ", "").replace("bit/s", "bps")
    units = {"kbps": 10**3, "mbps": 10**6, "gbps": 10**9, "tbps": 10**12}
    for unit, factor in units.items():
        number = low.removesuffix(unit)
        if number != low and number.replace(".", "", 1).isdigit():
            return max(1, round(float(number) * factor))
    raise UsageError(
        f"'{text}' is not a bandwidth",
        because="it is a number and a unit: Kbps, Mbps, Gbps or Tbps",
        hint="write it like 25Gbps",
    )


def _service(path: str, spec: ScenarioServices) -> ServiceKind:
    return ServiceKind(
        name=spec.name,
        replicas=spec.replicas,
        profile=Profile(
            cpu_milli=at(f"{path}.cpu", parse_cpu, spec.cpu),
            memory_bytes=at(f"{path}.memory", parse_size, spec.memory),
            gpu=at(f"{path}.gpu", parse_gpu, spec.gpu),
        ),
        run_s=at(f"{path}.run", parse_duration, spec.run),
        rate=spec.rate,
        peak=spec.peak,
        takes_s=at(f"{path}.takes", parse_duration, spec.takes),
        at_once=spec.at_once,
        queue=spec.queue,
        within_s=at(f"{path}.within", parse_duration, spec.within),
        priority=spec.priority,
        preempt=spec.preempt,
    )


def _kind(path: str, spec: ScenarioJobs) -> JobKind:
    gpu = at(f"{path}.gpu", parse_gpu, spec.gpu)
    return JobKind(
        name=spec.name,
        weight=spec.weight,
        tasks=spec.tasks,
        gang=spec.gang,
        profile=Profile(
            cpu_milli=at(f"{path}.cpu", parse_cpu, spec.cpu),
            memory_bytes=at(f"{path}.memory", parse_size, spec.memory),
            gpu=gpu,
        ),
        gpus=0 if gpu is None else gpu.count,
        run_s=at(f"{path}.run", _duration_range, spec.run),
        stage_bytes=at(f"{path}.stage", parse_size, spec.stage),
        step_s=at(f"{path}.step", parse_duration, spec.step),
        allreduce_bytes=at(f"{path}.allreduce", parse_size, spec.allreduce),
        priority=spec.priority,
        preempt=spec.preempt,
        same_leaf=spec.same_leaf,
        checkpoint_s=_maybe(f"{path}.checkpoint", parse_duration, spec.checkpoint),
        speeds=dict(spec.speeds),
    )


def _duration_range(amount: Amount) -> tuple[float, float]:
    low, dots, high = str(amount).partition("..")
    least = parse_duration(low)
    most = parse_duration(high) if dots else least
    if not 0 < least <= most:
        raise UsageError(
            f"'{amount}' is not a time that a task can run",
            because="it is empty, or its least is more than its most",
            hint="write it like 30s or 1m..5m",
        )
    return least, most


def _arrivals(text: str) -> tuple[Arrivals, int]:
    word, _, count = text.partition(":")
    kind: Arrivals | None = next((known for known in ARRIVALS if known == word), None)
    if kind is None or not count:
        raise SpecError(
            f"'{text}' is not how jobs arrive",
            path="$.jobs.arrivals",
            because="it is a word and a number of jobs",
            hint="allowed here: poisson:200 (at random times), burst:50 (all at "
            "once), every:100 (evenly)",
        )
    number = at("$.jobs.arrivals", parse_whole, count)
    if not 1 <= number <= 1_000_000:
        raise SpecError(
            f"{number} jobs cannot be simulated",
            path="$.jobs.arrivals",
            because="there may be from 1 to 1000000",
            hint="write it like poisson:200",
        )
    return kind, number


def _submit_to(jobs: JobsSpec, fabric: Fabric) -> tuple[str, ...]:
    names = [fabric.nodes[host].name for host in fabric.hosts]
    if jobs.submit_to == "any":
        return ()
    if jobs.submit_to == "one":
        return (names[0],)
    for place, name in enumerate(jobs.submit_to):
        if name not in names:
            raise SpecError(
                f"no host '{name}' to submit to",
                path=f"$.jobs.submit_to[{place}]",
                because=f"hosts are {names[0]} to {names[-1]}",
                hint="allowed here: any, one, or a list of hosts",
            )
    return tuple(jobs.submit_to)


def _policies(names: tuple[str, ...]) -> tuple[str, ...]:
    registry = Registry()
    if names == (ALL,):
        return tuple(registry.names())
    for place, name in enumerate(names):
        if name not in registry.names():
            raise SpecError(
                f"no policy '{name}'",
                path=f"$.policies[{place}]",
                hint=f"allowed here: {', '.join(registry.names())}; or only {ALL}",
            )
    return names


def _happening(path: str, spec: EventSpec, fabric: Fabric) -> PlannedFault:
    given: dict[What, str | None] = {
        "fail": spec.fail,
        "join": spec.join,
        "leave": spec.leave,
    }
    named: list[tuple[What, str]] = [
        (what, name) for what, name in given.items() if name is not None
    ]
    if len(named) != 1:
        raise SpecError(
            f"an event is one thing, not {len(named)}",
            path=path,
            because="it says when something fails, joins or leaves",
            hint="allowed here: at and one of fail, join, leave; `for` with fail",
        )
    what, name = named[0]
    at(f"{path}.{what}", lambda _: fabric.require(name), name)
    is_host = name in fabric.index and fabric.index[name] in fabric.hosts
    if what != "fail" and not is_host:
        raise SpecError(
            f"{name} cannot {what}",
            path=f"{path}.{what}",
            because="only hosts come and go",
            hint="name a host, or let it fail",
        )
    return PlannedFault(
        at(f"{path}.at", parse_duration, spec.at),
        what,
        name,
        _maybe(f"{path}.for", parse_duration, spec.for_),
    )


def _require_room(settings: ScenarioSettings, fabric: Fabric) -> None:
    """Refuse jobs that could never run: nothing would say why they wait."""
    hosts = len(fabric.hosts)
    wants = [
        (f"$.jobs.mix[{n}]", kind.name, kind.profile, kind.tasks if kind.gang else 1)
        for n, kind in enumerate(settings.kinds)
    ] + [
        (f"$.services[{n}]", kind.name, kind.profile, kind.replicas)
        for n, kind in enumerate(settings.services)
    ]
    for path, name, profile, needed in wants:
        room = [_slots(kind.capacity, profile) for kind in settings.hosts.kinds]
        most = sum(room[number] for number in settings.hosts.of)
        if most < needed:
            raise SpecError(
                f"job '{name}' can never run",
                path=path,
                because=f"it needs room for {needed} tasks at once, and {hosts} hosts "
                f"have room for {most}",
                hint="ask for less, or give hosts more",
            )


def _slots(capacity: Capacity, profile: Profile) -> int:
    return Ledger(capacity).use_up(profile, 1 << 20)


def _cable(path: str, spec: CableSpec, latency_ns: int, bps: int) -> tuple[int, int]:
    """Return latency and bandwidth, with defaults where the scenario has none."""
    if spec.latency is not UNSET:
        seconds = at(f"{path}.latency", _latency, spec.latency)
        latency_ns = round(seconds * 1e9)
    if spec.bandwidth is not UNSET:
        bps = at(f"{path}.bandwidth", parse_bandwidth, spec.bandwidth)
    return latency_ns, bps


def _latency(amount: Amount) -> float:
    """Return seconds; nanoseconds are known here, and nowhere else."""
    text = str(amount).strip()
    number = text.removesuffix("ns").strip()
    if number != text and number.isdigit():
        return int(number) / 1e9
    return parse_duration(amount)


def _maybe(path: str, parse: Callable[[Amount], T], amount: Amount | None) -> T | None:
    return None if amount is None else at(path, parse, amount)
