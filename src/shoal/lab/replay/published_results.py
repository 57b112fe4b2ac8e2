"""Published results as records, and the trace files that they refer to.

A record says on which trace a policy reached which value of a metric, with which
options. Every field is honoured; one that is not understood is told, not ignored.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from shoal import validation
from shoal.errors import TraceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

ENVIRONMENT: Final = "SHOAL_TRACES"
FOLDER: Final = Path("shared") / "traces"
EXPECTED: Final = "expected.json"
DEMAND: Final = 1.3
"""Demand up to which a cluster is filled, as a factor, unless a record wants more."""

Protocol: TypeAlias = Literal["fill", "batch", "preemptive"]
PROTOCOLS: Final[dict[str, Protocol]] = {"A": "fill", "B": "batch", "C": "preemptive"}
NOTES: Final = frozenset({"note", "notes", "comment", "source", "paper", "sd", "id"})
"""Fields that say something to people, and nothing to us."""


class PublishedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One published result."""

    trace: str
    policy: str
    metric: str
    value: float
    tolerance: float
    table: str = ""
    nodes: str = ""
    cluster: str = ""
    demand_pct: int = 130
    seeds: int | tuple[int, ...] = 10
    seed: int | None = None
    candidates: int | None = None
    backfill: bool = False
    starts: tuple[int, ...] = ()
    length: int | None = None
    first: int | None = None
    slots: int | None = None

    @property
    def protocol(self) -> Protocol:
        """How such results were obtained: by the table, or by what the record has."""
        known = PROTOCOLS.get(self.table.upper()[:1])
        if known is not None:
            return known
        if self.nodes or self.metric == "gpu_allocation_pct":
            return "fill"
        return "preemptive" if self.cluster else "batch"

    @property
    def options(self) -> str:
        """The options, for people."""
        parts = {
            "fill": [f"{self.demand_pct} %", f"{len(self.all_seeds)} seeds"],
            "batch": ["backfill" if self.backfill else "no backfill"],
            "preemptive": ["preemptive"],
        }[self.protocol]
        if self.candidates is not None:
            parts.append(f"{self.candidates} candidates")
        if self.starts:
            parts.append(f"{len(self.starts)} windows")
        return ", ".join(parts)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds to take the mean over: a number n means the first n."""
        if self.seed is not None:
            return (self.seed,)
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def demand(self) -> float:
        """How much demand must arrive, as a factor."""
        return max(DEMAND, self.demand_pct / 100)


ALIASES: Final = {
    "d": "candidates",
    "sample": "candidates",
    "samples": "candidates",
    "sampled": "candidates",
    "sampled_candidates": "candidates",
    "procs": "slots",
    "processors": "slots",
    "published": "value",
    "cluster_spec": "cluster",
    "node_list": "nodes",
}
"""Other names of fields."""

FIELDS: Final = frozenset(PublishedResult.__struct_fields__)


def read_records(path: Path) -> tuple[list[PublishedResult], list[str]]:
    """Read records, and tell what is not understood in them, one line each."""
    try:
        document: object = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise TraceError(
            "there is no such file of published results",
            file=str(path),
            hint="`--expect FILE` names another",
        ) from error
    except OSError as error:
        raise TraceError(
            "the file cannot be read",
            file=str(path),
            because=str(error),
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            "this is no JSON", file=str(path), because=str(error)
        ) from error
    if isinstance(document, dict) and isinstance(
        inner := cast("dict[str, Any]", document).get("records"), list
    ):
        document = cast("object", inner)
    if not isinstance(document, list):
        raise TraceError(
            "published results are a list of records", file=str(path), line=1
        )
    records: list[PublishedResult] = []
    remarks: list[str] = []
    for number, item in enumerate(cast("list[object]", document), 1):
        records.append(_record(item, number, path, remarks))
    return records, remarks


def _record(
    item: object, number: int, path: Path, remarks: list[str]
) -> PublishedResult:
    what = f"record {number}"
    if not isinstance(item, dict):
        raise TraceError(f"{what} is no object", file=str(path))
    fields: dict[str, object] = {}
    for name, value in cast("dict[str, object]", item).items():
        field = ALIASES.get(name, name)
        if field in FIELDS:
            fields[field] = value
        elif name == "options" and isinstance(value, dict):
            fields.update(cast("dict[str, object]", value))
        elif name not in NOTES:
            remarks.append(f"{what}: field '{name}' is not understood")
    try:
        record = msgspec.convert(fields, PublishedResult)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"{what} is wrong", file=str(path), because=validation.sentence(error)
        ) from error
    if not record.all_seeds or min(record.all_seeds) < 0:
        raise TraceError(f"{what} has no seeds", file=str(path))
    if record.candidates is not None and record.candidates < 1:
        raise TraceError(f"{what} has {record.candidates} candidates", file=str(path))
    return record


def found(folder: Path, name: str) -> Path:
    """Return the file of this name in the folder, compressed or not."""
    path = folder / name
    bare = path.with_suffix("") if path.suffix == ".gz" else path
    for candidate in (path, bare, bare.with_name(bare.name + ".gz")):
        if candidate.is_file():
            return candidate
    raise TraceError(
        "there is no such trace",
        file=str(path),
        hint="`--traces DIR` names the folder that the traces are in",
    )


def default_folder(here: Path) -> Path:
    """Return where traces are: as the environment says, or next to the project."""
    told = os.environ.get(ENVIRONMENT)
    if told:
        return Path(told)
    project = Path(__file__).resolve().parents[4]
    for folder in _candidates((here.resolve(), project)):
        if (folder / EXPECTED).is_file():
            return folder
    raise UsageError(
        "there are no traces here",
        because=f"there is no {FOLDER / EXPECTED} in this folder or above it",
        hint=f"name the folder by `--traces DIR` or by ${ENVIRONMENT}",
    )


def _candidates(places: Iterable[Path]) -> Iterable[Path]:
    for place in places:
        for folder in (place, *place.parents):
            yield folder / FOLDER
