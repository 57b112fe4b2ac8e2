"""`shoal sim`: a data centre in virtual time, with the machines of live nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from shoal.cli import imported
from shoal.cli.display.printing import echo_json
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.options import (
    OptionTable,
    json_option,
    options_of,
    quiet_option,
    suggest,
    talk,
)
from shoal.cli.terminal import echo
from shoal.errors import SpecError, UsageError

if TYPE_CHECKING:
    from shoal.lab.datacentre.comparison import Comparison


COMMANDS: Final[dict[str, str]] = {
    "goodput": "shoal.cli.lab.sim_goodput:goodput",
    "reproduce": "shoal.cli.lab.sim_traces:reproduce",
    "sweep": "shoal.cli.lab.sim_sweep:sweep",
    "traces": "shoal.cli.lab.sim_traces:traces",
}
"""Other commands under `shoal sim`, imported when called."""


class SimGroup(click.Group):
    """Runs a scenario, unless the first word names another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a first word that is no command as a scenario to run."""
        if args and args[0] not in (*COMMANDS, "run", "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return ["run", *sorted(COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of this name, if there is one."""
        if cmd_name == "run":
            return run
        return imported(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None


@click.group(
    cls=SimGroup,
    help="Simulate a data centre, with the machines and policies of live nodes.\n\n"
    "\b\n"
    "shoal sim SCENARIO.yaml\n"
    "shoal sim --leaves 8 --jobs poisson:200 --policy simple,nearest --seed 7\n"
    "shoal sim sweep SCENARIO.yaml --vary seed=1..5 --policy all\n"
    "shoal sim run --help lists all flags",
)
def sim() -> None:
    """Run a scenario, or the command that the first word names."""


FLAGS: Final[OptionTable] = (
    (("--fabric",), {"help": "leaf-spine, fat-tree, wan, or a graph file."}),
    (("--spines",), {"type": int, "help": "Spine switches of a leaf-spine fabric."}),
    (("--leaves",), {"type": int, "help": "Leaf switches of a leaf-spine fabric."}),
    (("--hosts",), {"type": int, "help": "Hosts under each leaf."}),
    (("--k", "k"), {"type": int, "help": "Ports of each switch of a fat-tree."}),
    (
        ("--oversubscription",),
        {"type": float, "help": "Oversubscription of the leaves' uplinks."},
    ),
    (("--gpu",), {"help": "GPUs of each host: A100:80GB:4."}),
    (("--jobs",), {"help": "Number and arrival of jobs: poisson:200, burst:50."}),
    (("--load",), {"type": float, "help": "Average load on all devices: 0.7."}),
    (("--policy",), {"help": "Policies to compare: simple,nearest; or all."}),
    (("--overlay",), {"help": "Gossip overlays: flood,random,mst,nearest."}),
    (("--loss",), {"type": float, "help": "Share of messages that are lost."}),
    (
        ("--fail",),
        {"multiple": True, "help": "A fault, its time and duration: leaf3@60s+2m."},
    ),
    (("--churn",), {"help": "Mean time between host crashes: 30s."}),
    (("--until",), {"help": "Stop at this time, even if jobs still run: 1h."}),
    (("--seed",), {"type": int, "help": "Seed of all random choices."}),
)


@click.command("run")
@click.argument("scenario", required=False, type=click.Path(path_type=Path))
@options_of(FLAGS)
@click.option(
    "--html", type=click.Path(path_type=Path), help="Write an HTML report here."
)
@click.option(
    "--pictures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each chart to this folder, as SVG.",
)
@json_option
@quiet_option
def run(
    scenario: Path | None,
    html: Path | None,
    pictures: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401 - one for each of FLAGS
) -> None:
    """Simulate SCENARIO, or what the flags describe, and print the results."""
    # Imported here: numpy and rustworkx cost more than the rest of the command line.
    from shoal.lab.datacentre.comparison import compare  # noqa: PLC0415
    from shoal.lab.datacentre.scenario import convert  # noqa: PLC0415
    from shoal.lab.datacentre.settings import resolve  # noqa: PLC0415

    document, folder = document_of(scenario)
    if "vary" in document:
        raise UsageError(
            f"scenario {scenario} is a sweep",
            because="it says what to vary",
            hint=f"run `shoal sim sweep {scenario}`",
        )
    apply_flags(document, flags)
    settings, fabric = resolve(convert(document), folder)
    runs = len(settings.policies) * len(settings.overlays)
    ended: dict[str, int] = {}
    with ProgressDisplay("simulating jobs", quiet=quiet) as progress:

        def told(name: str, done: int, total: int) -> None:
            ended[name] = done
            progress.told(sum(ended.values()), runs * total)

        comparison = compare(settings, fabric, told)
    if html is not None or pictures is not None:
        _write(html, pictures, comparison)
    if as_json:
        _echo_json(comparison)
    else:
        _echo_tables(comparison)
    _tell_costs(comparison, quiet=quiet)
    if not as_json and html is None:
        again = "shoal sim ... --html report.html"
        suggest(f"{again} (pictures)", "shoal policy list", quiet=quiet)


def document_of(scenario: Path | None) -> tuple[dict[str, Any], Path]:
    """Read a scenario file; return its fields and its folder. No file: no fields."""
    from shoal.lab.datacentre.scenario import read_scenario  # noqa: PLC0415

    if scenario is None:
        return {}, Path()
    try:
        text = scenario.read_bytes()
    except OSError as error:
        raise UsageError(
            f"scenario {scenario} cannot be read",
            because=error.strerror or str(error),
            hint="examples/sim has some to begin with",
        ) from None
    try:
        document = read_scenario(text, as_json=scenario.suffix == ".json")
    except SpecError as error:
        what = error.what.replace("the spec", f"scenario {scenario}", 1)
        raise SpecError(what, because=error.because, hint=error.hint) from None
    if not isinstance(document, dict):
        raise UsageError(
            f"scenario {scenario} is no mapping",
            because=f"it is {type(document).__name__}",
            hint="begin with a line such as `seed: 7`",
        )
    return dict(document), scenario.parent


def apply_flags(document: dict[str, Any], flags: dict[str, Any]) -> None:
    """Override the scenario by flags."""

    def put(value: object, *path: str) -> None:
        if value is None:
            return
        inner = document
        for step in path[:-1]:
            below: Any = inner.setdefault(step, {})
            if not isinstance(below, dict):
                return  # The scenario is wrong here, and will be refused.
            inner = cast("dict[str, Any]", below)
        inner[path[-1]] = value

    fabric = flags["fabric"]
    if fabric is not None and ("." in fabric or "/" in fabric):
        document["fabric"] = {"kind": "file", "file": str(Path(fabric).absolute())}
    elif fabric is not None and _kind_of(document) != fabric:
        document["fabric"] = {"kind": fabric}
    for name in ("spines", "leaves", "hosts", "k", "oversubscription"):
        put(flags[name], "fabric", name)
    put(flags["gpu"], "host", "gpu")
    put(flags["jobs"], "jobs", "arrivals")
    put(flags["load"], "jobs", "load")
    put(_split(flags["policy"]), "policies")
    put(_split(flags["overlay"]), "gossip", "overlay")
    for name in ("loss", "until", "seed"):
        put(flags[name], name)
    put(flags["churn"], "churn", "every")
    if flags["fail"]:
        events = list(document.get("events") or [])
        document["events"] = events + [_failure(text) for text in flags["fail"]]


def _kind_of(document: dict[str, Any]) -> str:
    fabric: Any = document.get("fabric")
    if not isinstance(fabric, dict):
        return ""
    return str(cast("dict[str, Any]", fabric).get("kind", "leaf-spine"))


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _failure(text: str) -> dict[str, str]:
    """Read `leaf3@60s` or `leaf3@60s+2m`."""
    name, at, when = text.partition("@")
    if not name or not at or not when:
        raise UsageError(
            f"'{text}' is not a failure",
            because="it is what fails, an @, and when",
            hint="write it like leaf3@60s, or leaf3@60s+2m to have it back after 2 min",
        )
    begin, plus, long = when.partition("+")
    event = {"at": begin, "fail": name}
    return {**event, "for": long} if plus else event


def _write(html: Path | None, folder: Path | None, comparison: Comparison) -> None:
    from shoal.lab.report.page import page, pictures  # noqa: PLC0415

    files = {} if html is None else {html: page(comparison)}
    if folder is not None:
        files |= {folder / name: svg for name, svg in pictures(comparison).items()}
    write_files(files)


def write_files(files: dict[Path, str]) -> None:
    """Write texts to files, and say so."""
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written",
                because=error.strerror or str(error),
                hint="name a place where you may write",
            ) from None
        talk(f"wrote {path}")


def _echo_json(comparison: Comparison) -> None:
    import msgspec  # noqa: PLC0415

    answer = {
        "scenario": comparison.settings.name,
        "seed": comparison.settings.seed,
        "fabric": comparison.fabric.name,
        "hosts": len(comparison.fabric.hosts),
        "runs": [run.result for run in comparison.runs],
    }
    echo_json(msgspec.to_builtins(answer))


def _echo_tables(comparison: Comparison) -> None:
    from rich.console import Console  # noqa: PLC0415

    from shoal.lab.report.formatting import unended  # noqa: PLC0415
    from shoal.lab.report.table import heading, tables  # noqa: PLC0415

    width = None if sys.stdout.isatty() else 200
    console = Console(width=width, highlight=False)
    echo(comparison.settings.name)
    echo(heading(comparison))
    for table in tables(comparison):
        console.print()
        console.print(table)
    left = unended([run.result for run in comparison.runs])
    for line in ["", *left] if left else []:
        echo(line)


def _tell_costs(comparison: Comparison, *, quiet: bool) -> None:
    import resource  # noqa: PLC0415

    events = sum(run.figures.events for run in comparison.runs)
    spent_s = sum(run.figures.wall_s for run in comparison.runs)
    cpu_s = sum(run.figures.cpu_s for run in comparison.runs)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    talk(
        f"simulated {events:,} events in {spent_s:.1f} s "
        f"({events / max(cpu_s, 1e-9):,.0f} per CPU second), {memory:,} MB",
        quiet=quiet,
    )
