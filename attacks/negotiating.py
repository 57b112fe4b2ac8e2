"""What a scheduler says to a worker, from a demand to an assignment, by hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from attacks.wire import CutOff, Said

if TYPE_CHECKING:
    from attacks.reef import Member, Reef
    from attacks.wire import Link


def demand(member: Member, request: str, **more: Any) -> Said:
    """Return a demand for one small task."""
    wanted: Said = {
        "type": "demand",
        "request": request,
        "profile": {"cpu_milli": 100, "memory_bytes": 64 << 20},
        "count": 1,
        "rank": [0, 0.0, member.identity.node, request],
        "owner": member.grant.owner,
    }
    return wanted | more


def leased(link: Link, member: Member, request: str, **more: Any) -> list[str]:
    """Return leases that a worker has given us."""
    link.say(demand(member, request, **more))
    said = link.hear("offer", "refusal")
    until = time.monotonic() + 5.0
    while said["type"] == "refusal" and time.monotonic() < until:
        time.sleep(0.1)  # What an attack before held takes a moment to be free.
        request += "+"
        link.say(demand(member, request, **more))
        said = link.hear("offer", "refusal")
    assert said["type"] == "offer", said["reason"]
    leases = said["leases"]
    link.say({"type": "commit", "request": request, "leases": leases, "lease_s": 30.0})
    return list(link.hear("committed")["leases"])


def all_room(link: Link, member: Member) -> list[str]:
    """Return leases of all the CPUs that a worker has, in halves; two at least.

    What ran before this may still hold a CPU, so fewer are waited for.
    """
    half = {"profile": {"cpu_milli": 500}}
    taken = leased(link, member, "all", **half)
    for n in range(64):
        link.say(demand(member, f"all{n}", **half))
        said = link.hear("offer", "refusal")
        if said["type"] == "refusal":
            if len(taken) >= 2:
                break
            time.sleep(0.1)
            continue
        taken += said["leases"]
        link.say(
            {
                "type": "commit",
                "request": f"all{n}",
                "leases": said["leases"],
                "lease_s": 60.0,
            }
        )
        link.hear("committed")
    return taken


def assignment(
    member: Member, lease: str, sequence: int, argv: list[str], **task: Any
) -> Said:
    """Return the order to run a program."""
    work = {"argv": argv} | task.pop("work", {})
    more = task.pop("more", {})
    order: Said = {
        "type": "assignment",
        "lease": lease,
        "attempt": [member.identity.node, 1, sequence],
        "task": {"id": "j.g.0", "job": "j", "group": "j.g", "work": work} | task,
    }
    order.update(more)
    return order


def ran(reef: Reef, number: int, argv: list[str], **task: Any) -> str:
    """Have the lender run a program; return what it said of that."""
    member = reef.member(number)
    with member.link(reef.lender) as link:
        lease = leased(link, member, f"r{number}")[0]
        link.say(assignment(member, lease, 1, argv, **task))
        link.say({"type": "inquiry", "request": "seen"})  # In order: it comes after.
        try:
            link.hear("inventory")
            said = link.hear("started", "report", "refusal", "staging", within_s=1.0)
            if said["type"] not in ("report", "refusal"):
                said = link.hear("report", "refusal", within_s=20.0)
        except CutOff as cut:
            return f"cut off: {cut}"
        except TimeoutError:
            return "no answer: the frame was void"
    if said["type"] == "refusal":
        return f"refused: {said['reason']}"
    outcome = said["outcome"]
    told = outcome.get("reason") or outcome.get("exit_code")
    return f"{outcome['kind']}: {told}"
