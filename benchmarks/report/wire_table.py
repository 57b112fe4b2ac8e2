"""What training sent over wires, from lines of results: shares, table and picture.

Rows may be measured one by one. Table and picture are of the same lines, so they agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.report.line_chart import Curve, drawn

HEADER_BYTES: Final = 66
"""Of Ethernet, IP, and TCP with the time in it."""

COUNTED: Final = ("OutSegs", "RetransSegs", "TCPPureAcks")
"""Segments that were sent, those sent again, and those that came without data."""

Row = tuple[str, int, str]
"""How deltas were compressed, in how many fragments, and where they were averaged."""


def surplus(
    sent: Mapping[str, int], idle: Mapping[str, float], seconds: float, claimed: int
) -> dict[str, Any]:
    """Return what the wire carried, and by what it is more than was claimed."""
    own = {name: value - idle.get(name, 0.0) * seconds for name, value in sent.items()}
    acks = own.get("TCPPureAcks", 0.0)
    parts = {
        "headers": (own["OutSegs"] - acks) * HEADER_BYTES,
        "acknowledgements": acks * HEADER_BYTES,
        "idle": sent["bytes"] - own["bytes"],
    }
    rest = sent["bytes"] - claimed - sum(parts.values())
    shares = {**parts, "rest": rest}.items()
    return {
        "interface_bytes": sent["bytes"],
        "interface_of_claimed": round(sent["bytes"] / claimed, 4),
        "wire_bytes": round(own["bytes"]),
        "wire_of_claimed": round(own["bytes"] / claimed, 4),
        "surplus_of_claimed": {name: round(v / claimed, 4) for name, v in shares},
        "sent_again_of_segments": own.get("RetransSegs", 0.0) / own["OutSegs"],
    }


def latest_rows(
    lines: Iterable[Mapping[str, Any]], wanted: Sequence[Row]
) -> dict[Row, Mapping[str, Any]]:
    """Return the last line of each row that was measured."""
    measured = [line for line in lines if "curve" in line and "reduce" in line]
    found = {(x["compress"], x["fragments"], x["reduce"]): x for x in measured}
    return {row: found[row] for row in wanted if row in found}


def curves_of(rows: Mapping[Row, Mapping[str, Any]]) -> str:
    """Return a picture of losses by bytes."""
    curves = [Curve(_name(row), line["curve"]) for row, line in rows.items()]
    return drawn(curves, "megabytes sent", "training loss", powers=True)


def table_of(rows: Mapping[Row, Mapping[str, Any]]) -> list[str]:
    """Return the rows of the guide's table, and of that of the surplus."""
    table = [_cells(row, line) for row, line in rows.items()]
    more = [
        (_name(row), *(f"{100 * v:.1f} %" for v in line["surplus_of_claimed"].values()))
        for row, line in rows.items()
    ]
    return [f"| {' | '.join(cells)} |" for cells in (*table, *more)]


def _cells(row: Row, line: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        _name(row),
        f"{line['loss']:.3f}",
        *(f"{line[k] / 1e6:.1f} MB" for k in ("claimed_bytes", "wire_bytes")),
        *(f"{line[k]:.2f}" for k in ("wire_of_claimed", "interface_of_claimed")),
        f"{line['synchronous_bytes'] / line['wire_bytes']:.0f} times",
        f"{line['seconds_a_round']:.1f}",
        f"{100 * min(line['busy']):.0f} %",
        f"{line['load']:.0f}",
    )


def _name(row: Row) -> str:
    compress, fragments, reduce = row
    parts = "" if fragments == 1 else f", {fragments} fragments"
    return f"{compress}{parts}, {reduce}"
