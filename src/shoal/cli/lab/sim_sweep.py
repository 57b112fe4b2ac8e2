"""`shoal sim sweep`: many scenarios under many policies, on all cores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from shoal.cli.display.printing import echo_json
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.lab.sim import FLAGS, apply_flags, document_of, write_files
from shoal.cli.options import (
    OptionTable,
    json_option,
    options_of,
    quiet_option,
    suggest,
    talk,
)
from shoal.cli.terminal import echo
from shoal.errors import UsageError
from shoal.lab.datacentre.sweep import (
    VARY,
    append_result,
    cells_of,
    read_results,
    run_cells,
)
from shoal.lab.report.sweep_figures import figures_of
from shoal.lab.report.sweep_page import (
    sweep_page,
    sweep_pictures,
    terminal_tables,
    unended_lines,
)
from shoal.model.spec.documents import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.lab.datacentre.sweep import Cell, CellResult

RANGE_MAX: Final = 1_000
_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)

_OPTIONS: Final[OptionTable] = (
    (
        ("--vary",),
        {"multiple": True, "help": "A field and its values: jobs.load=0.5,0.9."},
    ),
    (("--processes",), {"type": int, "help": "Processes; default: one per CPU."}),
    (
        ("--results",),
        {"type": _FILE, "help": "Append results here; skip those it has already."},
    ),
    (("--html",), {"type": _FILE, "help": "Write a page that compares."}),
    (("--pictures",), {"type": _FOLDER, "help": "Write each chart here, as SVG."}),
)


@click.command(
    help="Compare policies on every combination of what SCENARIOS vary.\n\n"
    "\b\n"
    "shoal sim sweep examples/sim/sweep.yaml --policy all\n"
    "shoal sim sweep SCENARIO.yaml --vary seed=1..5 --vary jobs.load=0.5,0.9\n"
    "shoal sim sweep *.yaml --results sweep.jsonl --html sweep.html",
)
@click.argument("scenarios", nargs=-1, type=_FILE)
@options_of(_OPTIONS)
@options_of(FLAGS)
@json_option
@quiet_option
def sweep(
    scenarios: tuple[Path, ...],
    vary: tuple[str, ...],
    processes: int | None,
    results: Path | None,
    html: Path | None,
    pictures: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401 - one for each of FLAGS
) -> None:
    """Run a sweep, or what is left of it, and print how policies compare."""
    if processes is not None and processes < 1:
        raise UsageError(f"{processes} processes are not enough", hint="use 1 or more")
    cells = _cells(scenarios, vary, flags)
    found = _run(cells, results, processes or 0, quiet=quiet)
    figures = figures_of(found)
    name = scenarios[0].stem if len(scenarios) == 1 else f"{len(scenarios)} scenarios"
    files = {} if html is None else {html: sweep_page(figures, name)}
    if pictures is not None:
        drawn = sweep_pictures(figures)
        files |= {pictures / name: svg for name, svg in drawn.items()}
    write_files(files)
    if as_json:
        answer = {"cells": found, "policies": figures.summaries}
        echo_json(msgspec.to_builtins(answer))
    else:
        _echo_tables(terminal_tables(figures))
        for line in unended_lines(figures):
            echo(line)
    if not as_json and html is None:
        suggest("shoal sim sweep ... --html sweep.html (a page)", quiet=quiet)


def _cells(
    scenarios: tuple[Path, ...], vary: tuple[str, ...], flags: dict[str, Any]
) -> list[Cell]:
    cells: list[Cell] = []
    for scenario in scenarios or (None,):
        document, folder = document_of(scenario)
        apply_flags(document, flags)
        given: Any = document.setdefault(VARY, {})
        if isinstance(given, dict):
            document[VARY] = {**given, **dict(_axis(text) for text in vary)}
        cells += cells_of(document, folder)
    return cells


def _axis(text: str) -> tuple[str, list[Any]]:
    """Read `seed=1..5` or `jobs.load=0.5,0.9`."""
    field, _, values = text.partition("=")
    low, dots, high = values.partition("..")
    if dots and low.isdecimal() and high.isdecimal():
        found: list[Any] = list(range(int(low), int(high) + 1))
        if 0 < len(found) <= RANGE_MAX:
            return field, found
    parts = [part.strip() for part in values.split(",")]
    if not field or not all(parts) or dots:
        raise UsageError(
            f"'{text}' does not say what to vary",
            because="it is a field, an equals sign and values",
            hint="write it like seed=1..5 or jobs.load=0.5,0.9",
        )
    return field, [read_yaml(part) for part in parts]


def _run(
    cells: list[Cell], path: Path | None, processes: int, *, quiet: bool
) -> list[CellResult]:
    """Return the result of each cell, in their order; run those that are missing."""
    known = {} if path is None else read_results(path)
    done = {cell.id: known[cell.id] for cell in cells if cell.id in known}
    left = [cell for cell in cells if cell.id not in done]
    if done:
        talk(f"{len(done)} of {len(cells)} cells are in {path} already", quiet=quiet)
    try:
        for result in _shown(run_cells(left, processes), len(left), quiet=quiet):
            done[result.cell] = result
            if path is not None:
                append_result(path, result)
    except KeyboardInterrupt:
        if path is not None:
            talk(f"{path} has {len(done)} of {len(cells)} cells; run it again to go on")
        raise
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written",
            because=error.strerror or str(error),
            hint="name a place where you may write",
        ) from None
    return [done[cell.id] for cell in cells]


def _shown(
    results: Iterable[CellResult], total: int, *, quiet: bool
) -> Iterable[CellResult]:
    with ProgressDisplay("simulating", quiet=quiet, shown_after_s=0) as progress:
        progress.told(0, total)
        for done, result in enumerate(results, start=1):
            progress.told(done, total)
            yield result


def _echo_tables(tables: Iterable[Any]) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    for place, table in enumerate(tables):
        if place:
            console.print()
        console.print(table)
