"""`shoal sim traces` and `shoal sim reproduce`: replay traces."""

from __future__ import annotations

import os
import resource
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import click
import msgspec

from shoal.cli.display.printing import echo_json, echo_table
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.exit_codes import ExitCode
from shoal.cli.options import (
    OptionTable,
    json_option,
    options_of,
    quiet_option,
    talk,
)
from shoal.cli.terminal import echo
from shoal.errors import PolicyError, UsageError
from shoal.lab.replay.comparison import (
    PolicyLine,
    Setup,
    compare,
    compare_filling,
    compare_placing,
)
from shoal.lab.replay.published_results import EXPECTED, default_folder, read_records
from shoal.lab.replay.reproduction import (
    Reproduction,
    figures_of,
    parts_of,
    results_of,
    wanted_of,
)
from shoal.lab.traces import openb, training
from shoal.lab.traces.csv_columns import parse_map
from shoal.lab.traces.formats import format_of, read_jobs
from shoal.lab.traces.generators import MODELS, generate
from shoal.lab.traces.llm_requests import requests
from shoal.lab.traces.request_summary import RequestSummary, summary_of
from shoal.lab.traces.transforms import all_at_once, from_zero, shuffled, window
from shoal.lab.traces.values import Cluster, TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.lab.replay.published_results import PublishedResult
    from shoal.lab.replay.reproduction import Part

SLOTS: Final = 256
SEEDS: Final = 3

_PATH: Final = click.Path(path_type=Path)


# Published results.


@click.command()
@click.option("--traces", "folder", type=_PATH, help="Folder of the traces.")
@click.option("--expect", type=_PATH, help="File of published results.")
@click.option("--table", "tables", multiple=True, help="Only records of this table.")
@click.option("--processes", type=int, help="Processes to use; default: one per CPU.")
@json_option
@quiet_option
def reproduce(
    folder: Path | None,
    expect: Path | None,
    tables: tuple[str, ...],
    processes: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Reproduce published results, and print how far off ours are.

    Exits with 1 if one is outside its tolerance, and with 2 if a file is missing or
    wrong, or a policy or a metric is not known.
    """
    if expect is None:
        folder = folder or default_folder(Path())
        expect = folder / EXPECTED
    records, remarks = read_records(expect)
    if folder is None:
        # Only the records were named: the traces may be next to them.
        near = any((expect.parent / record.trace).exists() for record in records)
        folder = expect.parent if near else default_folder(Path())
    for remark in remarks:
        talk(f"warning: {remark}", quiet=quiet)
    if tables:
        names = [name.upper() for name in tables]
        records = [record for record in records if record.table.upper() in names]
    if not records:
        raise UsageError("there are no records to reproduce")
    parts = [parts_of(record, folder) for record in records]
    awaited = _Awaited(records, parts)
    wanted = wanted_of(records, parts)
    figures = _computed(wanted, awaited, processes, quiet=quiet)
    results = results_of(records, parts, figures)
    if as_json:
        echo_json(_results_json(results))
    else:
        _echo_results(results)
    outside = [result for result in results if not result.within]
    verdict = f"{len(results) - len(outside)} of {len(results)} within tolerance"
    talk(verdict, quiet=quiet)
    sys.exit(ExitCode.ERROR if outside else ExitCode.OK)


def _computed(
    wanted: dict[Part, list[tuple[str, int]]],
    awaited: _Awaited,
    processes: int | None,
    *,
    quiet: bool,
) -> dict[tuple[Part, str, int], float]:
    """Do all replays, and show how far they are; return their figures."""
    count = min(processes or os.cpu_count() or 1, len(wanted))
    if count < 1:
        raise UsageError(f"{processes} processes are not enough")
    figures: dict[tuple[Part, str, int], float] = {}
    with ProgressDisplay("replaying", quiet=quiet, shown_after_s=0) as progress:
        progress.told(0, len(wanted))
        for done, (part, values) in enumerate(_replayed(wanted, count), start=1):
            for (name, demand_pct), value in zip(wanted[part], values, strict=True):
                figures[part, name, demand_pct] = value
            for result in awaited.completed_by(part, figures):
                progress.say(_line_of(result))
            progress.told(done, len(wanted))
    return figures


@final
class _Awaited:
    """Records, and what each of them still waits for."""

    def __init__(
        self, records: Sequence[PublishedResult], parts: Sequence[Sequence[Part]]
    ) -> None:
        self._left = [
            (record, needed, set(needed))
            for record, needed in zip(records, parts, strict=True)
        ]

    def completed_by(
        self, part: Part, figures: dict[tuple[Part, str, int], float]
    ) -> list[Reproduction]:
        """Return the results that were complete only with this replay."""
        found: list[Reproduction] = []
        for record, needed, left in self._left:
            if part in left:
                left.discard(part)
                if not left:
                    found += results_of([record], [needed], figures)
        return found


def _line_of(result: Reproduction) -> str:
    record = result.record
    trace = Path(record.trace).name.split(".")[0]
    verdict = "ok" if result.within else "OUTSIDE"
    return (
        f"{record.table} {trace} {record.policy} {record.options} {record.metric}: "
        f"published {record.value:.3f}, ours {result.ours:.3f}, {verdict}"
    )


def _replayed(
    wanted: dict[Part, list[tuple[str, int]]], processes: int
) -> Iterable[tuple[Part, list[float]]]:
    """Yield what each replay gave, as it comes."""
    if processes == 1:
        yield from ((part, figures_of(part, each)) for part, each in wanted.items())
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        ours = {pool.submit(figures_of, *each): each[0] for each in wanted.items()}
        for replay in as_completed(ours):
            yield ours[replay], replay.result()


def _echo_results(results: Sequence[Reproduction]) -> None:
    rows = [
        (
            result.record.table,
            Path(result.record.trace).name.split(".")[0],
            result.record.policy,
            result.record.options,
            result.record.metric,
            f"{result.record.value:.3f}",
            f"{result.ours:.3f}",
            f"{result.difference:+.3f}",
            f"{result.record.tolerance:g}",
            "ok" if result.within else "OUTSIDE",
        )
        for result in results
    ]
    titles = "table trace policy options metric published ours difference within"
    echo_table([*titles.split(), ""], rows)


def _results_json(results: Sequence[Reproduction]) -> dict[str, Any]:
    return {
        "within": all(result.within for result in results),
        "records": [
            {
                **msgspec.to_builtins(result.record),
                "ours": result.ours,
                "difference": result.difference,
                "within": result.within,
            }
            for result in results
        ],
    }


# Any workload, under several policies.

_TRACES_OPTIONS: Final[OptionTable] = (
    (("--policy",), {"help": "Policies to compare: fcfs,sjf,minnow."}),
    (("--slots",), {"type": int, "help": "Processors or GPUs of the cluster."}),
    (("--cluster",), {"type": _PATH, "help": "Cluster description (CSV)."}),
    (("--hosts",), {"type": int, "help": "Equal hosts in a live scheduler's table."}),
    (("--gpus-per-host",), {"type": int, "default": 8, "show_default": True}),
    (("--nodes",), {"type": _PATH, "help": "Host list for pods to fill (CSV)."}),
    (("--columns",), {"help": "Columns of a CSV: submitted=a:ms,run=b,slots=c."}),
    (("--window",), {"help": "START:LENGTH, only these jobs: 1000:500."}),
    (("--first",), {"type": int, "help": "Only the first jobs, this many."}),
    (
        ("--shuffle",),
        {"is_flag": True, "help": "Shuffle lengths and sizes between jobs."},
    ),
    (("--at-once",), {"is_flag": True, "help": "Submit all jobs at time 0."}),
    (
        ("--warm-up",),
        {"type": int, "default": 0, "help": "First jobs, left out of the figures."},
    ),
    (("--drop",), {"is_flag": True, "help": "Leave out jobs that can never fit."}),
    (
        ("--backfill",),
        {"type": click.Choice(["none", "easy", "conservative"]), "default": "none"},
    ),
    (("--preemptive",), {"is_flag": True, "help": "Let jobs be stopped and resumed."}),
    (
        ("--protocol",),
        {
            "type": click.Choice(["none", "rlscheduler", "muri"]),
            "default": "none",
            "help": "Follow the protocol of a paper.",
        },
    ),
    (("--candidates",), {"type": int, "help": "Workers sampled for each pod."}),
    (
        ("--demand",),
        {"type": int, "default": 130, "help": "GPU demand to fill up to, in per cent."},
    ),
    (("--seed",), {"type": int, "default": 0, "help": "Seed of all random choices."}),
)


@click.command(
    help="Replay the workload in FILE under several policies, side by side.\n\n"
    "FILE is a trace of any format that shoal knows, or a workload to make up, such "
    "as lublin:1000, philly:1000 or poisson:1000. Of requests to language models it "
    "shows what is in them, unless --slots says what to replay them on.\n\n"
    "\b\n"
    "shoal sim traces trace.swf.gz --policy fcfs,sjf,minnow --backfill easy\n"
    "shoal sim traces jobs.csv --cluster n8g8.csv --preemptive --policy srtf,braid\n"
    "shoal sim traces pods.csv --nodes nodes.csv --policy best-fit,fgd,forage\n"
    "shoal sim traces philly:20000 --hosts 100000 --policy balanced",
)
@click.argument("file")
@options_of(_TRACES_OPTIONS)
@json_option
@quiet_option
def traces(file: str, as_json: bool, quiet: bool, **given: Any) -> None:  # noqa: ANN401
    """Replay a workload and print the figures."""
    if _only_shown(file, given):
        _echo_requests(file, summary_of(requests(Path(file))), as_json)
        talk("next: --slots N replays each request as a job of one GPU", quiet=quiet)
        return
    try:
        lines = list(_lines(file, given))
    except PolicyError as error:
        raise UsageError(error.what, because=error.because, hint=error.hint) from error
    if as_json:
        rows = [msgspec.to_builtins(line) for line in lines]
        echo_json({"trace": file, "policies": rows})
    else:
        _echo_lines(lines)
    events, cpu_s = sum(n.events for n in lines), sum(n.cpu_s for n in lines)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    rate = events / max(cpu_s, 1e-9)
    talk(
        f"{events:,} events in {cpu_s:.1f} s of CPU ({rate:,.0f} a second), "
        f"{memory_mb:,} MB",
        quiet=quiet,
    )


def _only_shown(file: str, given: dict[str, Any]) -> bool:
    """Whether the file has requests, and no cluster is named to replay them on."""
    named = ("slots", "cluster", "hosts", "columns")
    if any(given[name] is not None for name in named) or not Path(file).is_file():
        return False
    return format_of(Path(file)) == "requests"


def _echo_requests(file: str, found: RequestSummary, as_json: bool) -> None:
    if as_json:
        echo_json({"trace": file, "summary": msgspec.to_builtins(found)})
        return
    rate = f"{found.per_s:.2f} a second, {found.busiest_minute_per_s:.2f} at most"
    echo(f"{found.requests:,} requests in {found.span_s:,.0f} s: {rate}")
    echo()
    echo_table(
        ["tokens", "mean", "median", "p99", "longest"],
        [
            [name, *(f"{value:,.0f}" for value in msgspec.structs.astuple(lengths))]
            for name, lengths in (("input", found.input), ("output", found.output))
        ],
    )
    if found.reuse:
        echo()
        echo(f"{found.blocks:,} blocks of context, of which a cache had:")
        echo()
        rows = [[f"{r.cache_blocks:,}", f"{r.found_pct:.1f} %"] for r in found.reuse]
        echo_table(["cache of blocks", "found"], rows)


def _lines(file: str, given: dict[str, Any]) -> Iterable[PolicyLine]:
    made_up = file.partition(":")[0] in MODELS and not Path(file).exists()
    fills = not made_up and given["nodes"] and not given["columns"]
    if fills and format_of(Path(file)) == "openb-pods":
        return _filled(Path(file), given)
    cluster = training.cluster(given["cluster"]) if given["cluster"] else None
    if given["hosts"] is not None:
        hosts, per_host = given["hosts"], given["gpus_per_host"]
        if hosts < 1 or per_host < 1:
            raise UsageError(f"{hosts} hosts of {per_host} GPUs are no cluster")
        cluster = Cluster(hosts_per_switch=hosts, gpus_per_host=per_host)
    slots = cluster.gpus if cluster else given["slots"] or 0
    jobs, slots = _jobs(file, made_up, slots, given)
    if given["hosts"] is not None:
        names = _names(given["policy"], "balanced")
        assert cluster is not None
        return compare_placing(jobs, names, cluster, given["seed"])
    setup = Setup(
        slots=slots,
        cluster=cluster,
        protocol=given["protocol"],
        backfill=given["backfill"],
        preemptive=given["preemptive"],
        warm_up=given["warm_up"],
        drop=given["drop"],
    )
    return compare(jobs, _names(given["policy"], "fcfs,sjf,minnow"), setup)


def _filled(file: Path, given: dict[str, Any]) -> Iterable[PolicyLine]:
    return compare_filling(
        list(openb.hosts(given["nodes"])),
        list(openb.pods(file)),
        _names(given["policy"], "best-fit,fgd,forage"),
        demand_pct=given["demand"],
        candidates=given["candidates"],
        seeds=range(given["seed"], given["seed"] + SEEDS),
    )


def _jobs(
    file: str, made_up: bool, slots: int, given: dict[str, Any]
) -> tuple[Sequence[TraceJob], int]:
    """Return the jobs as they are to be replayed, and the size of the cluster."""
    rng = Random(given["seed"])
    if made_up:
        slots = slots or SLOTS
        trace = generate(file, slots, rng)
    else:
        columns = parse_map(given["columns"]) if given["columns"] else None
        trace = read_jobs(Path(file), columns)
    jobs: Sequence[TraceJob] = trace.jobs
    if not jobs:
        raise UsageError(
            f"there are no jobs that ran in {file}",
            hint="a list of pods without times can fill --nodes FILE",
        )
    slots = slots or trace.slots
    if not slots:
        raise UsageError(
            f"how large is the cluster of {file}?",
            because="the trace does not say",
            hint="give --slots N, --cluster FILE or --hosts N",
        )
    return _shaped(jobs, rng, given), slots


def _shaped(
    jobs: Sequence[TraceJob], rng: Random, given: dict[str, Any]
) -> Sequence[TraceJob]:
    if given["first"] is not None:
        jobs = window(jobs, 0, given["first"])
    if given["window"]:
        start, colon, length = given["window"].partition(":")
        if not (colon and start.isdecimal() and length.isdecimal()):
            raise UsageError(
                f"'{given['window']}' is no window",
                because="it is START:LENGTH, counted in jobs",
                hint="for example --window 1000:500",
            )
        jobs = window(jobs, int(start), int(length))
    if given["shuffle"]:
        times = [job.submitted_s for job in jobs]
        replace = msgspec.structs.replace
        mixed = shuffled(jobs, rng)
        jobs = [
            replace(job, submitted_s=at) for job, at in zip(mixed, times, strict=True)
        ]
    if given["at_once"]:
        return all_at_once(jobs)
    # The papers' formulas look at the clock of the trace; nothing else does.
    return jobs if given["protocol"] != "none" else from_zero(jobs)


def _names(text: str | None, default: str) -> list[str]:
    return [name.strip() for name in (text or default).split(",") if name.strip()]


def _echo_lines(lines: Sequence[PolicyLine]) -> None:
    if not lines:
        raise UsageError("there is no policy to replay")
    metrics = list(lines[0].figures)
    rows = [
        (line.policy, *(_number(line.figures[name]) for name in metrics))
        for line in lines
    ]
    echo_table(["policy", *metrics], rows)
    if lines[0].dropped:
        talk(f"{lines[0].dropped} jobs that can never fit were left out")


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 1e6 else f"{value:,.0f}"
