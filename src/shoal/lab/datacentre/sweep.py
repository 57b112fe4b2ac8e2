"""Sweeps: one scenario with some of its fields varied, under several policies.

A sweep is a scenario file with one more field, `vary`. Each of its axes is either a
field with a list of values, or names with the parts of a scenario that each replaces:

    vary:
      seed: [1, 2, 3]
      jobs.load: [0.5, 0.9]
      uplinks:
        wide: {fabric: {oversubscription: 1}}
        narrow: {fabric: {oversubscription: 4}}

Every combination is a point, and a point with a policy and an overlay is a cell. Cells
know nothing of each other, so they run in as many processes as there are cores. Each
result is a line of a file as soon as it is there; a sweep that was stopped goes on with
the cells that the file lacks. A cell is named by a hash of all that it depends on.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from shoal import __version__, validation
from shoal.errors import SpecError, UsageError
from shoal.lab.datacentre.comparison import compare
from shoal.lab.datacentre.scenario import OverlayName, convert
from shoal.lab.datacentre.settings import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from shoal.lab.datacentre.results import RunResult
    from shoal.lab.datacentre.settings import ScenarioSettings
    from shoal.model.spec.documents import Plain
    from shoal.topology.fabric import Fabric

VARY: Final = "vary"
CELLS_MAX: Final = 100_000


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one cell: a line of a file of results."""

    cell: str  # a hash of all that it depends on
    scenario: str
    point: dict[str, str]  # axis to value
    policy: str
    overlay: str
    jobs: int
    ended: int
    failed: int
    starts: int
    jct_mean_s: float
    jct_p99_s: float
    wait_p95_s: float
    slowdown_mean: float
    utilisation: float
    makespan_s: float
    cross_leaf_share: float
    preemptions: int
    refusals: int
    messages: int
    message_bytes: int
    events: int
    cpu_s: float
    history: str
    why_unended: str = ""  # what kept the first of the jobs that did not end


class Cell(msgspec.Struct, frozen=True):
    """One run of a sweep."""

    id: str
    document: dict[str, Any]
    folder: Path  # where its files are
    point: dict[str, str]
    policy: str
    overlay: OverlayName

    def run(self) -> CellResult:
        """Simulate it and return its figures."""
        document: dict[str, Any] = {**self.document, "policies": [self.policy]}
        settings, fabric = resolve(convert(document), self.folder)
        settings = msgspec.structs.replace(settings, overlays=(self.overlay,))
        run = compare(settings, fabric).runs[0]
        return CellResult(
            cell=self.id,
            scenario=settings.name,
            point=self.point,
            cpu_s=round(run.figures.cpu_s, 3),
            why_unended=run.result.unended[0].why if run.result.unended else "",
            **_figures(run.result),
        )


def cells_of(document: Mapping[str, Any], folder: Path) -> list[Cell]:
    """Return the cells of a sweep; raise `SpecError` if a point is no scenario."""
    common = dict(document)
    axes = _axes(common.pop(VARY, None) or {})
    cells: list[Cell] = []
    for chosen in product(*axes.values()):
        point = dict(zip(axes, (label for label, _ in chosen), strict=True))
        varied = common
        for _, part in chosen:
            varied = _merged(varied, part)
        settings, fabric = _resolved(varied, folder, point)
        cells += _cells_at(varied, folder, point, settings, fabric)
        if len(cells) > CELLS_MAX:
            raise UsageError(
                f"the sweep has more than {CELLS_MAX} cells",
                because=f"its axes are {', '.join(axes)}",
                hint="vary less at once",
            )
    return cells


def _cells_at(
    varied: dict[str, Any],
    folder: Path,
    point: dict[str, str],
    settings: ScenarioSettings,
    fabric: Fabric,
) -> Iterator[Cell]:
    depends_on = (
        __version__,
        msgspec.structs.replace(settings, policies=(), overlays=()),
        [(node.name, node.kind, node.tier) for node in fabric.nodes],
        [(n.a, n.b, n.latency_ns, n.bandwidth_bps) for n in fabric.links],
    )
    digest = hashlib.sha256(msgspec.msgpack.encode(depends_on))
    for policy in settings.policies:
        for overlay in settings.overlays:
            own = digest.copy()
            own.update(f"\n{policy}\n{overlay}".encode())
            id_ = own.hexdigest()[:16]
            yield Cell(id_, varied, folder, point, policy, overlay)


def run_cells(cells: Iterable[Cell], processes: int = 0) -> Iterator[CellResult]:
    """Run cells in parallel; yield each result when it is there."""
    cells = list(cells)
    count = min(processes or os.cpu_count() or 1, len(cells))
    if count <= 1:
        yield from map(Cell.run, cells)
        return
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(cell.run) for cell in cells]):
                yield future.result()
        finally:
            # Whoever stops listening does not wait for cells that have not begun.
            pool.shutdown(wait=False, cancel_futures=True)


def read_results(path: Path) -> dict[str, CellResult]:
    """Return the results in a file, by cell; none if there is no such file.

    The last line may be cut off, if whoever wrote it was stopped.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            because=error.strerror or str(error),
            hint="name a file of your own",
        ) from None
    found: dict[str, CellResult] = {}
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            result = msgspec.json.decode(line, type=CellResult)
        except msgspec.DecodeError as error:
            if number == len(lines):
                continue  # It has no end of line: it was being written.
            raise UsageError(
                f"{path} is no file of results",
                because=f"line {number}: {validation.sentence(error)}",
                hint="name another file, or remove this one",
            ) from None
        found[result.cell] = result
    return found


def append_result(path: Path, result: CellResult) -> None:
    """Add a line to a file of results, after the last whole line."""
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(msgspec.json.encode(result) + b"\n")


def _figures(result: RunResult) -> dict[str, Any]:
    fields = {field.name for field in msgspec.structs.fields(CellResult)}
    every = {field.name for field in msgspec.structs.fields(result)}
    return {name: getattr(result, name) for name in sorted(fields & every)}


# Axes.

Axis = list[tuple[str, dict[str, Any]]]
"""Each value of an axis as text, and the part of the scenario that it replaces."""


def _axes(vary: Plain) -> dict[str, Axis]:
    if not isinstance(vary, dict):
        raise SpecError(
            "a sweep varies fields",
            path=f"$.{VARY}",
            because=f"it is {vary!r}",
            hint="write it like vary: {seed: [1, 2, 3]}",
        )
    return {name: _axis(name, values) for name, values in vary.items()}


def _axis(name: str, values: Plain) -> Axis:
    if isinstance(values, list) and values:
        return [(_label(value), _nested(name.split("."), value)) for value in values]
    if isinstance(values, dict) and values:
        parts = cast("dict[str, Any]", values)
        if all(isinstance(part, dict) for part in parts.values()):
            return [(str(label), part) for label, part in parts.items()]
    raise SpecError(
        f"'{name}' cannot be varied like this",
        path=f"$.{VARY}.{name}",
        because="it is neither a list of values nor names with parts of a scenario",
        hint="write it like jobs.load: [0.5, 0.9]",
    )


def _label(value: Plain) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _nested(steps: Sequence[str], value: Plain) -> dict[str, Any]:
    for step in reversed(steps[1:]):
        value = {step: value}
    return {steps[0]: value}


def _merged(whole: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with a part of it replaced; mappings are merged.

    A fabric of another kind replaces the whole fabric, whose fields mean nothing to it.
    """
    merged = dict(whole)
    for key, value in part.items():
        old: Any = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            before = cast("dict[str, Any]", old)
            after = cast("dict[str, Any]", value)
            other_kind = "kind" in after and after["kind"] != before.get("kind")
            merged[key] = after if other_kind else _merged(before, after)
        else:
            merged[key] = value
    return merged


def _resolved(
    document: dict[str, Any], folder: Path, point: Mapping[str, str]
) -> tuple[ScenarioSettings, Fabric]:
    try:
        return resolve(convert(document), folder)
    except SpecError as error:
        where = ", ".join(f"{axis} {label}" for axis, label in point.items())
        what = f"{error.what} ({where})" if where else error.what
        hint = f"{error.hint}; and {VARY}" if error.path == "$" else error.hint
        raise SpecError(what, because=error.because, hint=hint) from None
