"""A worker's own rules, on top of what the shoal grants: the owner comes first."""

from __future__ import annotations

import msgspec

from shoal.model.ids import OwnerId


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Whom this worker serves, with what, and what happens when its owner returns.

    How much of the machine is lent is said by the capacity given to the worker.
    """

    drivers: tuple[str, ...] = ("process",)
    owners: tuple[OwnerId, ...] = ()  # empty: every member
    yield_to_owner: bool = True  # what runs is preempted, with this grace
    owner_grace_s: float = 30.0

    def refusal(self, owners: tuple[OwnerId, ...], driver: str) -> str | None:
        """Say why work of this kind is not taken, if so.

        The owners are that of the scheduler, and that of the job if it is another.
        """
        if driver not in self.drivers:
            return f"driver {driver} is not offered, only {', '.join(self.drivers)}"
        for owner in owners if self.owners else ():
            if owner not in self.owners:
                return f"owner {owner} is not among the {len(self.owners)} served here"
        return None
