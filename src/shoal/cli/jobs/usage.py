"""`shoal usage`: CPU- and GPU-hours per owner, used and lent."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.api.client import client as api
from shoal.api.documents import fields_of
from shoal.cli.display.printing import echo_json, echo_table, short_id
from shoal.cli.job_input.moments import moment_option
from shoal.cli.options import any_node_option, json_option, suggest, talk
from shoal.cli.terminal import echo_lines, safe_line

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import UsageRow

BY: Final = ("week", "day", "job", "node")
HOUR_S: Final = 3_600
ID_LENGTH_MAX: Final = 24
"""Longer ids, such as those of nodes, are shortened."""

COLUMNS: Final = (
    *("kind", "owner", "key", "name", "cpu_s", "gpu_s"),
    *("away_cpu_s", "away_gpu_s"),
)


@click.command()
@click.option(
    "--by", type=click.Choice(BY), default="week", help="What to sum up by; UTC."
)
@click.option(
    "--since",
    "since_s",
    metavar="WHEN",
    callback=moment_option,
    help="Only days since then: 30d, 2026-11-01.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, in seconds.")
@any_node_option
@json_option
def usage(
    by: str, since_s: float, as_csv: bool, node: str | None, as_json: bool
) -> None:
    """Show CPU- and GPU-hours by owner: used by jobs of this node, and lent by it.

    Every attempt counts from its start to its end, also one that failed or was
    preempted. Removed jobs still count.
    """
    with api.connect(node) as client:
        rows = sorted(client.usage(since_s, by).rows, key=_order)
    if as_json:
        echo_json({"by": by, "rows": [fields_of(row) for row in rows]})
        return
    if as_csv:
        _print_csv(rows)
        return
    if not rows:
        talk("nothing has run yet" if not since_s else "nothing has run since then")
        suggest("shoal run -- COMMAND")
        return
    heading = by.upper()
    echo_table(
        ("KIND", "OWNER", heading, "CPU-HOURS", "GPU-HOURS", "OF OTHERS"),
        [_cells(row) for row in rows],
    )
    suggest("shoal usage --by job" if by != "job" else "shoal usage --by node")


def _order(row: UsageRow) -> tuple[Any, ...]:
    return row.kind != "used", row.owner, row.key


def _cells(row: UsageRow) -> tuple[str, ...]:
    lent = row.kind == "lent"
    return (
        row.kind,
        _shortened(row.owner),
        f"{_shortened(row.key)} {row.name}".strip(),
        _hours(row.cpu_s),
        _hours(row.gpu_s),
        "" if lent else f"{_hours(row.away_cpu_s)} CPU {_hours(row.away_gpu_s)} GPU",
    )


def _shortened(text: str) -> str:
    return short_id(text) if len(text) > ID_LENGTH_MAX else text


def _hours(seconds: float) -> str:
    hours = seconds / HOUR_S
    return f"{hours:.1f}" if hours >= 10 else f"{hours:.4f}"


def _print_csv(rows: list[UsageRow]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        fields = fields_of(row)
        writer.writerow([safe_line(str(fields[name])) for name in COLUMNS])
    echo_lines(text.getvalue().rstrip("\n"))
