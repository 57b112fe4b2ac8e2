"""The scenario file: fabric, hosts, jobs, gossip and faults.

Amounts are text with units, as in job specs; `settings` turns them into numbers. Every
field has a default, so the shortest scenario is an empty file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from shoal import validation
from shoal.errors import SpecError
from shoal.model.spec.documents import Plain, read_json, read_yaml
from shoal.policy.registry import DEFAULT

Few = Annotated[int, Meta(ge=1, le=10_000)]
Priority = Annotated[int, Meta(ge=-100, le=100)]
Share = Annotated[float, Meta(ge=0, le=1)]
Ratio = Annotated[float, Meta(gt=0, le=1_000)]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Amount = str | int | float

OverlayName = Literal["flood", "random", "mst", "nearest"]


class _Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts: a field that does not exist is an error."""


class CableSpec(_Spec, frozen=True, kw_only=True):
    """What all links of one kind have in common."""

    latency: Amount | UnsetType = UNSET
    bandwidth: Amount | UnsetType = UNSET


class _FabricSpec(_Spec, frozen=True, kw_only=True, tag_field="kind"):
    """What all kinds of fabrics have in common."""

    host_link: CableSpec = CableSpec()
    uplink: CableSpec = CableSpec()


class LeafSpineSpec(_FabricSpec, frozen=True, kw_only=True, tag="leaf-spine"):
    """Every leaf is joined to every spine; `hosts` hang from each leaf."""

    spines: Few = 4
    leaves: Few = 8
    hosts: Few = 4
    oversubscription: Ratio | None = None  # narrows the uplinks to this


class FatTreeSpec(_FabricSpec, frozen=True, kw_only=True, tag="fat-tree"):
    """Switches of k ports in k pods, with k**3 / 4 hosts."""

    k: Annotated[int, Meta(ge=2, le=128)] = 4


class SiteSpec(_Spec, frozen=True, kw_only=True):
    """A place with hosts; where it is, in km on a flat map."""

    name: Name
    hosts: Few = 4
    x_km: float = 0.0
    y_km: float = 0.0


class WanSpec(_FabricSpec, frozen=True, kw_only=True, tag="wan"):
    """Sites, each joined to every other; `uplink` is what joins them."""

    sites: Annotated[tuple[SiteSpec, ...], Meta(min_length=1, max_length=1_000)] = (
        SiteSpec(name="home", hosts=4),
        SiteSpec(name="lab", hosts=8, x_km=400.0),
        SiteSpec(name="cloud", hosts=16, x_km=900.0, y_km=600.0),
    )


class GraphSpec(_FabricSpec, frozen=True, kw_only=True, tag="file"):
    """Any graph, from a file in GraphML or in node-link JSON."""

    file: Name


FabricSpec = LeafSpineSpec | FatTreeSpec | WanSpec | GraphSpec


class HostSpec(_Spec, frozen=True, kw_only=True):
    """What each host has."""

    cpu: Amount = 32
    memory: Amount = "256GB"
    gpu: Amount = "A100:80GB:4"


class HostKindSpec(HostSpec, frozen=True, kw_only=True):
    """Hosts of one kind, among others: the next `count` hosts of the fabric."""

    name: Name
    count: Few
    speed: Ratio = 1.0  # of its devices: a task of 10 s takes 10 s / speed
    link: CableSpec = CableSpec()  # instead of the fabric's `host_link`


class ScenarioServices(_Spec, frozen=True, kw_only=True):
    """An inference service: replicas that answer requests, each with a queue."""

    name: Name
    replicas: Annotated[int, Meta(ge=1, le=4_096)] = 1
    gpu: Amount = 1
    cpu: Amount = 4
    memory: Amount = "16GB"
    run: Amount = "5m"  # how long it serves
    rate: Annotated[float, Meta(gt=0, le=1e6)] = 10.0  # requests a second, on average
    peak: Annotated[float, Meta(ge=1, le=1_000)] = 1.0  # as often, in the middle
    takes: Amount = "100ms"  # a request, on a host of speed 1; drawn around this
    at_once: Annotated[int, Meta(ge=1, le=4_096)] = 1  # that a replica works on
    queue: Annotated[int, Meta(ge=0, le=1_000_000)] = 16  # more are refused
    within: Amount = "1s"  # an answer that comes later is late
    priority: Priority = 0
    preempt: bool = False


class ScenarioJobs(_Spec, frozen=True, kw_only=True):
    """One kind of job; `weight` says how often it comes among the others."""

    name: Name
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    tasks: Annotated[int, Meta(ge=1, le=4_096)] = 1
    gang: bool = False  # all tasks start together, and end together
    gpu: Amount = 1
    cpu: Amount = 4
    memory: Amount = "16GB"
    run: Amount = "1m..5m"  # a duration, or a range to draw from
    stage: Amount = 0  # bytes that a task fetches from where the job was submitted
    step: Amount = "250ms"  # computing between two all-reduces of a gang
    allreduce: Amount = 0  # bytes that each rank of a gang brings to it
    checkpoint: Amount | None = None  # a gang saves its work so often
    priority: Priority = 0
    preempt: bool = False
    same_leaf: Literal["no", "prefer", "require"] = "no"
    speeds: dict[Name, Ratio] = {}  # by model of GPU, instead of the hosts' own


class JobsSpec(_Spec, frozen=True, kw_only=True):
    """How many jobs come, when, and of which kinds."""

    arrivals: Name = "poisson:200"
    load: Annotated[float, Meta(gt=0, le=10)] = 0.7  # of all devices, on average
    over: Amount | None = None  # or: all of them within this time
    submit_to: Literal["any", "one"] | tuple[Name, ...] = "any"
    mix: Annotated[tuple[ScenarioJobs, ...], Meta(min_length=1, max_length=64)] = (
        ScenarioJobs(name="serve", weight=5, run="20s..2m", stage="2GB"),
        ScenarioJobs(
            name="train",
            weight=3,
            tasks=4,
            gang=True,
            run="1m..4m",
            stage="4GB",
            allreduce="400MB",
        ),
        ScenarioJobs(
            name="large",
            weight=1,
            tasks=8,
            gang=True,
            run="1m..4m",
            stage="8GB",
            allreduce="1GB",
            priority=5,
        ),
        ScenarioJobs(name="urgent", weight=1, run="5s..20s", priority=50, preempt=True),
    )


class GossipSpec(_Spec, frozen=True, kw_only=True):
    """How hosts gossip about free room."""

    overlay: OverlayName | tuple[OverlayName, ...] = "random"
    interval: Amount = "1s"
    fan_out: Annotated[int, Meta(ge=1, le=64)] = 3
    repeats: Annotated[int, Meta(ge=1, le=64)] = 3
    nearest: Annotated[int, Meta(ge=1, le=64)] = 4
    known: Annotated[int, Meta(ge=8, le=1_000_000)] = 1_024


class EventSpec(_Spec, frozen=True, kw_only=True):
    """Something that happens at a time: exactly one of fail, join and leave."""

    at: Amount
    fail: Name | None = None  # a host, a switch, or a link such as leaf0-spine1
    join: Name | None = None  # a host that is away until then
    leave: Name | None = None  # a host that drains and goes for good
    for_: Amount | None = msgspec.field(default=None, name="for")


class ChurnSpec(_Spec, frozen=True, kw_only=True):
    """Hosts crash at random, and come back."""

    every: Amount
    down: Amount = "30s"


class Scenario(_Spec, frozen=True, kw_only=True):
    """The whole scenario."""

    name: Name = "a simulated shoal"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    fabric: FabricSpec = LeafSpineSpec()
    host: HostSpec = HostSpec()
    hosts: Annotated[tuple[HostKindSpec, ...], Meta(max_length=256)] = ()
    services: Annotated[tuple[ScenarioServices, ...], Meta(max_length=64)] = ()
    jobs: JobsSpec = JobsSpec()
    policies: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=16)] = (
        DEFAULT,
    )
    gossip: GossipSpec = GossipSpec()
    loss: Share = 0.0  # of messages
    events: Annotated[tuple[EventSpec, ...], Meta(max_length=10_000)] = ()
    churn: ChurnSpec | None = None
    until: Amount | None = None  # the end, though jobs may still run


def read_scenario(text: str | bytes, *, as_json: bool = False) -> Plain:
    """Return the document of a scenario file as plain values."""
    document = read_json(text) if as_json else read_yaml(text)
    return {} if document is None else document


def convert(document: Plain) -> Scenario:
    """Return the scenario, or raise `SpecError` with the path of what is wrong."""
    fabric = document.get("fabric") if isinstance(document, dict) else None
    if isinstance(fabric, dict):
        fabric.setdefault("kind", "leaf-spine")
    try:
        return msgspec.convert(document, Scenario)
    except msgspec.ValidationError as error:
        what, path = validation.told(error)
        raise SpecError(
            what,
            path=path,
            because=_because(path, document),
            hint=_allowed(path, document),
        ) from None


def _because(path: str, document: Plain) -> str:
    value = _at(document, path)
    if isinstance(value, dict):
        return f"it has the fields {', '.join(value)}"
    return f"it is {value!r}" if value is not None else ""


def _at(document: Plain, path: str) -> Plain:
    value = document
    for step in _steps(path):
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return None
    return value


def _steps(path: str) -> list[str]:
    """Split `$.jobs.mix[2].gpu` into its steps."""
    return path.replace("[", ".").replace("]", "").split(".")[1:]


def _allowed(path: str, document: Plain) -> str:
    """Say what a path may hold, by the scenario's types."""
    value = _at(document, path)
    tag = value.get("kind") if isinstance(value, dict) else None
    kinds: list[Any] = [Scenario]
    for step in _steps(path):
        kinds = [inner for kind in kinds for inner in _inside(kind, step)]
    names: dict[str, None] = {}
    for kind in kinds:
        names.update(dict.fromkeys(_choices(kind, tag)))
    return f"allowed here: {', '.join(names)}" if names else "see examples/sim"


def _inside(kind: Any, step: str) -> list[Any]:  # noqa: ANN401 - any type
    """Return the types that a field, or an element, of a type may have."""
    info = msgspec.inspect.type_info(kind) if isinstance(kind, type) else kind
    match info:
        case msgspec.inspect.UnionType(types=types):
            return [inner for each in types for inner in _inside(each, step)]
        case msgspec.inspect.StructType(tag_field=field, tag=tag) if field == step:
            return [msgspec.inspect.LiteralType((tag,))]
        case msgspec.inspect.StructType(fields=fields):
            return [f.type for f in fields if f.encode_name == step]
        case msgspec.inspect.VarTupleType(item_type=item):
            return [item] if step.isdigit() or step == "..." else []
        case _:
            return []


def _choices(kind: Any, tag: Plain = None) -> list[str]:  # noqa: ANN401 - any type
    info = msgspec.inspect.type_info(kind) if isinstance(kind, type) else kind
    match info:
        case msgspec.inspect.UnionType(types=types):
            return [name for each in types for name in _choices(each, tag)]
        case msgspec.inspect.StructType(fields=fields):
            if info.tag is not None and tag is not None and info.tag != tag:
                return []
            named = [] if info.tag_field is None else [info.tag_field]
            return named + [field.encode_name for field in fields]
        case msgspec.inspect.LiteralType(values=values):
            return [str(value) for value in values]
        case msgspec.inspect.IntType(ge=low, le=high):
            return [f"a whole number from {low} to {high}"] if low is not None else []
        case msgspec.inspect.FloatType(ge=low, gt=above, le=high):
            least = low if low is not None else above
            return [f"a number from {least} to {high}"] if least is not None else []
        case msgspec.inspect.StrType():
            return ["text"]
        case msgspec.inspect.BoolType():
            return ["true", "false"]
        case msgspec.inspect.VarTupleType(item_type=item):
            return [f"a list of: {', '.join(_choices(item))}"]
        case _:
            return []
