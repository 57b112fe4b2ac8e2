"""The report for terminals: policies side by side, then overlays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from shoal.lab.report.formatting import (
    GOSSIP_ROWS,
    ROWS,
    columns,
    hottest,
    service_rows,
)
from shoal.topology.routes import Routes

if TYPE_CHECKING:
    from shoal.lab.datacentre.comparison import Comparison
    from shoal.lab.report.formatting import Row


def heading(comparison: Comparison) -> str:
    """Return one line about the fabric, and where it was hottest."""
    fabric = comparison.fabric
    routes = Routes(fabric)
    first, last = fabric.hosts[0], fabric.hosts[-1]
    paths = routes.path_count(first, last)
    hot = max(
        (run.result for run in comparison.runs),
        key=lambda result: result.hottest.mean if result.hottest else 0.0,
    )
    return (
        f"{fabric.name} · {len(fabric.hosts)} hosts · {len(fabric.links)} links · "
        f"ECMP {paths} path{'s' * (paths != 1)} end to end · "
        f"hottest link {hottest(hot)} ({hot.policy})"
    )


def tables(comparison: Comparison) -> list[Table]:
    """Return tables of all runs, of services, and of how news travelled."""
    served = service_rows([run.result for run in comparison.runs])
    services = [_table("requests to services", comparison, served)] if served else []
    return [
        _table("side by side", comparison, ROWS),
        *services,
        _table("gossip of who has room", comparison, GOSSIP_ROWS),
    ]


def _table(title: str, comparison: Comparison, rows: tuple[Row, ...]) -> Table:
    results = [run.result for run in comparison.runs]
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.add_column("", no_wrap=True)
    for name in columns(results):
        table.add_column(name, justify="right", no_wrap=True)
    for name, told in rows:
        table.add_row(name, *(told(result) for result in results))
    return table
