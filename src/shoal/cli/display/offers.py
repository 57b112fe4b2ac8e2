"""Placement options of a job: as a full table, or briefly after a submit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.api.documents import when_of
from shoal.cli.display.printing import gpus_text, table_lines
from shoal.cli.nodes.nodes import path_text
from shoal.cli.options import talk
from shoal.cli.terminal import echo_styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.api import shoal_pb2 as pb

HEADINGS: Final = ("#", "NODE", "GPU", "PATH", "START", "WHY")
OFFERS_SHOWN_MAX: Final = 5
GROUPS_SHOWN_MAX: Final = 5
NOW: Final = "now"


def rows(
    prospects: Sequence[pb.Prospect], after: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Return table rows for nodes, under `HEADINGS`; `after` what a group begins."""
    return [
        (
            str(number),
            prospect.node.name.petname,
            gpus_text(prospect.node.devices),
            path_text(prospect.node),
            _start(prospect, after),
            prospect.why,
        )
        for number, prospect in enumerate(prospects, start=1)
    ]


def _start(prospect: pb.Prospect, after: Sequence[str]) -> str:
    start = when_of(prospect)
    if after and prospect.when != prospect.WHEN_NEVER:
        start = f"after {' and '.join(after)}"
    return f"{start}, {prospect.slots} of them" if prospect.slots > 1 else start


def tell(plan: pb.PlanReply) -> None:
    """Print briefly where a job could run that is about to be submitted."""
    if len(plan.groups) > 1:
        for group in plan.groups[:GROUPS_SHOWN_MAX]:
            talk(f"  {group.group}: {_in_short(group)}")
        left = max(0, len(plan.groups) - GROUPS_SHOWN_MAX) + plan.more
        if left:
            talk(f"  and {left} other groups")
        return
    for group in plan.groups:
        talk(f"offers: {_in_short(group)}")
        shown = group.prospects[:OFFERS_SHOWN_MAX]
        if len(group.prospects) > 1:
            for line in table_lines(HEADINGS, rows(shown), err=True):
                echo_styled(f"  {line}", err=True)
        if left := len(group.prospects) - len(shown) + group.more:
            talk(f"  and {left} other nodes")
        if group.room < group.least and group.helps:
            talk("  helps: " + "   |   ".join(group.helps))


def _in_short(group: pb.GroupPlan) -> str:
    """Describe in one line which nodes have room for a group now."""
    if group.after:
        return f"starts after {' and '.join(group.after)}"
    if not group.prospects:
        return "no known node runs tasks: it waits for one"
    if group.never:
        return f"{group.never}; it waits until a node joins that can run it"
    open_now = [each for each in group.prospects if when_of(each) == NOW]
    known = len(group.prospects) + group.more
    if not open_now:
        nodes = "the one node" if known == 1 else f"any of {known} nodes"
        return f"no room now on {nodes}: it waits"
    first = open_now[0]
    if known == 1:
        return f"{first.node.name.petname} ({path_text(first.node)}) has room now"
    more = "or more " if len(open_now) == len(group.prospects) and group.more else ""
    return f"{len(open_now)} {more}of {known} nodes have room now"
