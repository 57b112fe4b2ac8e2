"""What a lender is promised: which of it holds here, for `shoal doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import NodeInfo

GROUPS: Final = (
    "run the node as root, or with a group of its own: "
    "systemd-run --user --scope -p Delegate=yes shoal up"
)
FIXES: Final = {
    "confined": "apt install bubblewrap, then shoal down; shoal up",
    "memory": GROUPS,
    "cpu": GROUPS,
    "processes": GROUPS,
    "disk": "nothing: it is looked at twice a second; `--strangers no` lends to nobody",
    "internet": "apt install slirp4netns, if tasks of others are to reach the internet",
}
LENT: Final = {
    "no": "nobody else runs tasks here",
    "confined": "tasks of other owners run if they are confined",
    "limited": "tasks of other owners run if they are confined and limited",
    "any": "tasks of every member run here, confined or not",
}
REACH: Final = {
    "none": "get no network",
    "internet": "reach the internet if they ask, and nothing nearer",
    "all": "reach all that this machine reaches if they ask",
}


class Finding(NamedTuple):
    """What was found out about one thing; `fix` says what to do if it is not well."""

    what: str
    state: str  # "ok", "note" or "bad"
    said: str
    fix: str = ""


def promise_findings(info: NodeInfo) -> list[Finding]:
    """Say to whom a node lends its machine, and which promise is weaker there."""
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
    findings = [Finding("lending", state, said, fix)]
    for text in node.weaker:
        name, _, why = text.partition(": ")
        told = f"the promise is weaker here: {why}"
        findings.append(Finding(name, "note", told, FIXES.get(name, "")))
    return findings
