"""How many shares a model is cut into, and which worker averages which.

Shares are equal, and their number stays the same for a whole run, so a share can go to
another worker at any time and nobody has to cut its delta again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.train.diloco.messages import SHARES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.train.diloco.rules import RoundRules

LARGE_BYTES: Final = 1 << 20
"""A delta of this size takes longer on its way than the messages about its shares."""

APART: Final = 3
"""So many workers make a centre's link the narrowest; with two it is as wide."""

EACH: Final = 3
"""Shares for each worker if their number may change: few or many, all have alike."""


def shares_of(rules: RoundRules, values: int) -> int:
    """Return the number of shares of a model of this size; 0 with a centre.

    It depends on nothing that changes, so whoever takes over comes to the same.
    """
    if rules.reduce == "central":
        return 0
    large = values * rules.value_bytes >= LARGE_BYTES * rules.fragments
    if rules.reduce == "auto" and not (large and rules.workers >= APART):
        return 0
    each = 1 if rules.quorum >= rules.workers else EACH
    return min(SHARES_MAX, each * rules.workers)


def assigned(
    before: Sequence[str], present: Sequence[str], shares: int
) -> tuple[str, ...]:
    """Return who averages each share: evenly, and as before wherever possible."""
    assert present
    load = dict.fromkeys(sorted(present), 0)
    most = -(-shares // len(load))
    owners: list[str] = []
    for share in range(shares):
        owner = before[share] if share < len(before) else ""
        keeps = owner in load and load[owner] < most
        owners.append(owner if keeps else "")
        if keeps:
            load[owner] += 1
    for share, owner in enumerate(owners):
        if not owner:
            owners[share] = min(load, key=lambda name: (load[name], name))
            load[owners[share]] += 1
    while max(load.values()) - min(load.values()) > 1:
        full = max(load, key=lambda name: (load[name], name))
        least = min(load, key=lambda name: (load[name], name))
        owners[owners.index(full)] = least
        load[full] -= 1
        load[least] += 1
    return tuple(owners)
