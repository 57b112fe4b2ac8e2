"""What was used and lent, summed up as a caller asks for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.api.service import callers
from shoal.core.housekeeping.usage_ledger import DAY_S
from shoal.errors import UsageError
from shoal.net.identity.petname import petname

if TYPE_CHECKING:
    from shoal.core.durability.journal import UsageRow
    from shoal.runtime.node import Node

BY: Final = ("week", "day", "job", "node")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def usage_view(node: Node, request: pb.UsageRequest) -> list[pb.UsageRow]:
    """Return rows by kind, owner and what the caller asks for.

    Callers of another owner see their own usage only.
    """
    by = request.by or BY[0]
    if by not in BY:
        raise UsageError(
            f"usage is not kept by {by[:40]}",
            because=f"it is kept by {', '.join(BY)}",
            hint="write it like --by day",
        )
    caller = callers.current()
    first_day = int(request.since_s // DAY_S)
    rows: dict[tuple[str, str, str], pb.UsageRow] = {}
    for each in node.usage.rows:
        if each.day < first_day or not (caller.is_own or caller.owner == each.owner):
            continue
        key, name = _key(each, by)
        row = rows.setdefault(
            (each.kind, each.owner, key),
            pb.UsageRow(kind=each.kind, owner=each.owner, key=key, name=name),
        )
        row.cpu_s += each.cpu_milli_s / 1_000
        row.gpu_s += each.gpu_milli_s / 1_000
        if each.kind == "used" and each.node != node.id:
            row.away_cpu_s += each.cpu_milli_s / 1_000
            row.away_gpu_s += each.gpu_milli_s / 1_000
    return list(rows.values())


def _key(row: UsageRow, by: str) -> tuple[str, str]:
    match by:
        case "job":
            return row.job or "(older)", row.name
        case "node":
            return row.node, petname(row.node)
        case "day":
            return (_EPOCH + timedelta(days=row.day)).date().isoformat(), ""
        case _:
            year, week, _ = (_EPOCH + timedelta(days=row.day)).isocalendar()
            return f"{year}-W{week:02}", ""
