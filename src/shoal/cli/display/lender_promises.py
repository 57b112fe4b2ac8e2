"""Which promises to the machine's owner hold here, for `shoal doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import NodeInfo

GROUPS: Final = (
    "run the node as root, or with a cgroup of its own: "
    "systemd-run --user --scope -p Delegate=yes shoal up"
)
FIXES: Final = {
    "confined": "apt install bubblewrap, then shoal down; shoal up",
    "memory": GROUPS,
    "cpu": GROUPS,
    "processes": GROUPS,
    "disk": "nothing: use is sampled twice a second; `--strangers no` lends to nobody",
    "internet": "apt install slirp4netns, if other owners' tasks need the internet",
}
LENT: Final = {
    "no": "only your own tasks run here",
    "confined": "other owners' tasks run if confined",
    "limited": "other owners' tasks run if confined and limited",
    "any": "every member's tasks run here, confined or not",
}
REACH: Final = {
    "none": "get no network",
    "internet": "reach the internet on request, but not your own networks",
    "all": "reach everything this machine reaches, on request",
}


class PromiseCheck(NamedTuple):
    """The result of one check; `fix` says what to do if it failed."""

    what: str
    state: str  # "ok", "note" or "bad"
    said: str
    fix: str = ""


def promise_findings(info: NodeInfo) -> list[PromiseCheck]:
    """Report to whom the node lends, and which promises are weaker here."""
    node = info.node
    if not node.worker:
        return []
    lent = LENT.get(info.strangers, info.strangers)
    reach = REACH.get(info.task_network, info.task_network)
    said = lent if info.strangers == "no" else f"{lent}; they {reach}"
    fix = "shoal up --strangers no|confined|limited|any"
    state = "note" if node.terms or info.strangers == "any" else "ok"
    if node.terms:
        said = f"{said}; now: {node.terms}"
    findings = [PromiseCheck("lending", state, said, fix)]
    for text in node.weaker:
        name, _, why = text.partition(": ")
        told = f"a promise is weaker here: {why}"
        findings.append(PromiseCheck(name, "note", told, FIXES.get(name, "")))
    return findings
