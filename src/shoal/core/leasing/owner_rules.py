"""A worker's own rules, on top of what the shoal grants: the owner comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shoal.core.lending.lend_rule import LendRule
from shoal.model.ids import OwnerId
from shoal.model.kinds import Strangers, TaskNetwork
from shoal.model.text.bounds import Lent

if TYPE_CHECKING:
    from shoal.core.events import DriverOpened

OWN_ONLY = "it serves its own owner only"


class OwnerRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which owners and drivers this worker serves, and that its own owner comes first.

    The worker's capacity says how much of the machine is lent.
    """

    drivers: tuple[str, ...] = ("process",)
    owners: tuple[OwnerId, ...] = ()  # empty: every member
    own: OwnerId = OwnerId("")  # whose machine it is; empty: nobody is a stranger
    strangers: Strangers = "any"  # which of the other owners' tasks run here
    task_network: TaskNetwork = "all"  # what such a task may reach, if it asks
    lent: Lent = ()  # which folders and environments other owners may use
    lend: LendRule = LendRule()  # when tasks of other owners run here
    owner_grace_s: float = 1.0  # how long they have to end when that is over

    def is_foreign(self, owners: tuple[OwnerId, ...]) -> bool:
        """Whether any of these owners is not the machine's own."""
        return bool(self.own) and any(owner != self.own for owner in owners)

    def refusal(
        self,
        owners: tuple[OwnerId, ...],
        driver: str,
        *,
        network: bool = False,
        opened: DriverOpened | None = None,
    ) -> str | None:
        """Return why this kind of work is refused, if it is.

        `owners` are the scheduler's and, if different, the job's. `opened` holds the
        driver's promises; a driver that made none cannot confine anything.
        """
        if driver not in self.drivers:
            return f"driver {driver} is not offered, only {', '.join(self.drivers)}"
        for owner in owners if self.owners else ():
            if owner not in self.owners:
                return f"owner {owner} is not among the {len(self.owners)} served here"
        if not self.is_foreign(owners):
            return None
        return self._weakness(opened) or (network and self._no_network(opened)) or None

    def lends_to(
        self, owners: tuple[OwnerId, ...], lends: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return what of the folders and environments here these owners may use."""
        if not self.is_foreign(owners):
            return lends
        return tuple(name for name in lends if name in self.lent)

    def parted(self, owners: tuple[OwnerId, ...]) -> str | None:
        """Return why the tasks of a gang could not reach each other, if so."""
        if not self.is_foreign(owners) or self.task_network != "internet":
            return None
        return (
            "tasks of a gang that use the network must reach each other, "
            "and this worker gives those of other owners the internet only"
        )

    def network(self, owners: tuple[OwnerId, ...], *, wanted: bool) -> TaskNetwork:
        """Return what a task of these owners may reach."""
        if not wanted:
            return "none"
        return self.task_network if self.is_foreign(owners) else "all"

    def _weakness(self, opened: DriverOpened | None) -> str:
        """Return why no task of another owner runs here, if so."""
        if self.strangers == "any":
            return ""
        if self.strangers == "no":
            return f"this worker is not lent to others: {OWN_ONLY}"
        why = "it is not known yet whether it can" if opened is None else ""
        if opened is not None:
            why = opened.unconfined
        if why:
            return f"this worker cannot confine tasks: {why}; {OWN_ONLY}"
        if self.strangers == "limited" and opened is not None and opened.unlimited:
            return f"this worker cannot limit tasks: {opened.unlimited}; {OWN_ONLY}"
        return ""

    def _no_network(self, opened: DriverOpened | None) -> str:
        """Return why a task of another owner gets no network here, if so."""
        match self.task_network:
            case "none":
                return "tasks of other owners get no network on this worker"
            case "internet" if opened is None or opened.no_internet:
                why = "" if opened is None else f": {opened.no_internet}"
                return f"this worker cannot give a task the internet alone{why}"
            case _:
                return ""
