"""Format figures for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shoal.lab.datacentre.results import RunResult
from shoal.lab.datacentre.services import ServiceResult

if TYPE_CHECKING:
    from shoal.lab.datacentre.host_kinds import DealtHosts

Row = tuple[str, Callable[[RunResult], str]]


def seconds(value: float | None) -> str:
    """Write a duration with two or three digits that matter."""
    if value is None:
        return "never"
    if value < 0.001:
        return f"{value * 1e6:.0f} µs" if value else "0 s"
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    if value < 100:
        return f"{value:.1f} s"
    if value < 7_200:
        return f"{value:.0f} s"
    return f"{value / 3_600:.1f} h"


def share(value: float) -> str:
    """Write a share in per cent."""
    digits = 1 if 0 < value < 0.0995 else 0
    return f"{value * 100:.{digits}f} %"


def size(value: float) -> str:
    """Write bytes in the unit that leaves few digits."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """Write a large number with its thousands apart."""
    return f"{value:,.0f}"


def hosts_in_words(hosts: DealtHosts) -> str:
    """Say what hosts have: how many of each kind, if there are several."""
    told: list[str] = []
    for number, kind in enumerate(hosts.kinds):
        each = f"{kind.devices} {kind.model}" if kind.devices else "no GPUs"
        many = f"{hosts.of.count(number)} hosts with " if len(hosts.kinds) > 1 else ""
        told.append(f"{many}{each}")
    return ", ".join(told) + ("" if len(hosts.kinds) > 1 else " per host")


def hottest(result: RunResult) -> str:
    """Name the busiest link and how busy it was."""
    link = result.hottest
    return "-" if link is None else f"{link.name} {share(link.mean)}"


def service_rows(results: list[RunResult]) -> tuple[Row, ...]:
    """Return the rows about each service; none if there is no service."""
    return tuple(
        row
        for place, each in enumerate(results[0].services)
        for row in _rows_of(place, each.name)
    )


def _rows_of(place: int, name: str) -> tuple[Row, ...]:
    def part(told: Callable[[ServiceResult], float]) -> Callable[[RunResult], str]:
        return lambda r: share(
            told(r.services[place]) / max(1, r.services[place].requests)
        )

    return (
        (f"{name}: requests", lambda r: count(r.services[place].requests)),
        ("  answered in time", part(lambda s: s.answered - s.late)),
        ("  answered late", part(lambda s: s.late)),
        ("  refused, queues full", part(lambda s: s.refused)),
        ("  lost, no replica", part(lambda s: s.lost)),
        ("  latency, p50", lambda r: seconds(r.services[place].latency_p50_s)),
        ("  latency, p99", lambda r: seconds(r.services[place].latency_p99_s)),
        ("  replicas busy", lambda r: share(r.services[place].busy)),
    )


ROWS: Final[tuple[Row, ...]] = (
    ("jobs ended", lambda r: f"{r.ended} of {r.jobs}"),
    ("wait p50", lambda r: seconds(r.wait_p50_s)),
    ("wait p95", lambda r: seconds(r.wait_p95_s)),
    ("completion, mean", lambda r: seconds(r.jct_mean_s)),
    ("completion, p99", lambda r: seconds(r.jct_p99_s)),
    ("bounded slowdown", lambda r: f"{r.slowdown_mean:.2f}"),
    ("utilisation", lambda r: share(r.utilisation)),
    ("cross-leaf traffic", lambda r: size(r.cross_leaf_share * r.moved_bytes)),
    ("of all traffic", lambda r: share(r.cross_leaf_share)),
    ("hottest link", hottest),
    ("preemptions", lambda r: count(r.preemptions)),
    ("refusals", lambda r: count(r.refusals)),
    ("per task started", lambda r: f"{r.refusals / max(1, r.starts):.2f}"),
    ("messages", lambda r: count(r.messages)),
    ("message bytes", lambda r: size(r.message_bytes)),
)
"""What the table of runs tells, one line each."""

GOSSIP_ROWS: Final[tuple[Row, ...]] = (
    ("messages per host and s", lambda r: f"{r.gossip.messages_per_host_s:.2f}"),
    ("bytes per host and s", lambda r: size(r.gossip.bytes_per_host_s)),
    ("99 % know, p50", lambda r: seconds(r.gossip.converged_p50_s)),
    ("99 % know, p95", lambda r: seconds(r.gossip.converged_p95_s)),
    (
        "rounds / log2(hosts)",
        lambda r: (
            "-"
            if r.gossip.rounds_p50 is None
            else f"{r.gossip.rounds_p50:.1f} / {r.gossip.log2_hosts:.1f}"
        ),
    ),
    ("news that got lost", lambda r: f"{r.gossip.missed} of {r.gossip.probes}"),
    ("views that are stale", lambda r: share(r.gossip.stale_share)),
    ("stale for, mean", lambda r: seconds(r.gossip.stale_age_s)),
)
"""What the table of overlays tells."""


NAMED: Final = 3
"""Jobs that did not end and are named; of others only the number is told."""


def unended(results: list[RunResult]) -> list[str]:
    """Return a line for each run in which jobs did not end, with reasons."""
    lines: list[str] = []
    for name, result in zip(columns(results), results, strict=True):
        left = result.unended
        if not left:
            continue
        told = [f"{one.job} ({one.why})" for one in left[:NAMED]]
        if len(left) > NAMED:
            told.append(f"and {len(left) - NAMED} more")
        lines.append(f"{name}: {len(left)} did not end: {', '.join(told)}")
    return lines


def columns(results: list[RunResult]) -> list[str]:
    """Return a short name for each run: what tells it from the others."""
    policies = dict.fromkeys(result.policy for result in results)
    overlays = dict.fromkeys(result.overlay for result in results)
    if len(overlays) == 1:
        return [result.policy for result in results]
    if len(policies) == 1:
        return [result.overlay for result in results]
    return [f"{result.policy}, {result.overlay}" for result in results]
