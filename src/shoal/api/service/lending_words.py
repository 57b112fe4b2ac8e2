"""Puts an owner's lending rules into sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.model.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.core.leasing.owner_rules import OwnerRules
    from shoal.core.leasing.worker import Worker
    from shoal.runtime.node import Node

NAMES: Final = {"command": "commands", "image": "images", "recipe": "recipes"}
STRANGERS: Final = {
    "no": "Tasks of other owners do not run here.",
    "confined": "Tasks of other owners run here if they can be confined.",
    "limited": "Tasks of other owners run here if they can be confined, and the kernel "
    "limits what they take.",
    "any": "Tasks of every member run here.",
}
NETWORK: Final = {
    "none": "They get no network.",
    "internet": "They reach the internet, and not the networks of this machine.",
    "all": "They reach what this machine reaches, if they ask for a network.",
}


def rules_in_words(node: Node) -> list[str]:
    """Return what the owner of a node lets others do there, in sentences."""
    if node.peer.worker is None:
        return ["This machine lends nothing."]
    return list(_sentences(node.settings.rules))


def lending_now(worker: Worker) -> str:
    """Return whether a machine is lent to others now, and if not, why; in words."""
    presence = worker.lender.presence
    if presence.rule.is_always:
        return ""
    if presence.is_lent:
        return "lent to others now"
    return presence.reason + (f": {presence.sign}" if presence.sign else "")


def _sentences(rules: OwnerRules) -> Iterator[str]:
    kinds = [
        NAMES[k] for k, drivers in KINDS.items() if set(drivers) & {*rules.drivers}
    ]
    yield f"It runs {_and(kinds)}."
    if rules.owners:
        yield f"Only tasks of these owners run here: {', '.join(rules.owners)}."
    if rules.own:
        yield STRANGERS[rules.strangers]
        if rules.strangers != "no":
            yield NETWORK[rules.task_network]
        if rules.strangers != "no" and not rules.lend.is_always:
            yield (
                f"It is lent to others by the rule {rules.lend}; when that ends, "
                f"their tasks have {rules.owner_grace_s:g} s."
            )


def _and(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words) or "nothing"
    return f"{', '.join(words[:-1])} and {words[-1]}"
