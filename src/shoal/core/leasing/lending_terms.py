"""The terms on which a worker takes tasks: owner rules and driver promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import OwnerId
from shoal.model.kinds import uses_network
from shoal.model.text.shortages import not_lent
from shoal.protocol.limits import WEAKNESSES_MAX

if TYPE_CHECKING:
    from shoal.core.events import DriverOpened
    from shoal.core.leasing.owner_rules import OwnerRules
    from shoal.core.membership.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Assignment


ANYBODY: Final = (OwnerId(""),)
"""An owner that no machine has."""


class Lending(msgspec.Struct, frozen=True):
    """The terms as one scheduler sees them."""

    drivers: tuple[str, ...]
    networked: tuple[str, ...] | None = None  # drivers with a network; None: all
    terms: str = ""  # why that is not all
    lends: tuple[str, ...] = ()  # folders and environments
    owner: OwnerId = OwnerId("")  # whose scheduler it is
    weaker: tuple[str, ...] = ()


@final
class LendingTerms:
    """Decides which tasks a worker accepts, regardless of room."""

    def __init__(
        self, rules: OwnerRules, roster: Roster, lends: tuple[str, ...] = ()
    ) -> None:
        self._rules = rules
        self._lends = lends
        self._roster = roster
        self._opened: dict[str, DriverOpened] = {}  # the latest word of each driver
        self.pause = ""  # why nothing of other owners runs now

    def learn(self, opened: DriverOpened) -> None:
        """Note the promises of a driver."""
        self._opened[opened.driver] = opened

    @property
    def weaker(self) -> tuple[str, ...]:
        """The promises that do not fully hold here, in sentences."""
        said = [text for each in self._opened.values() for text in each.weaker]
        return tuple(dict.fromkeys(said))[:WEAKNESSES_MAX]

    @property
    def for_strangers(self) -> str:
        """Why tasks of other owners do not run here; empty if any do."""
        if not self._rules.own:
            return ""
        drivers = self._rules.drivers
        refused = [self.refusal(ANYBODY, driver, network=False) for driver in drivers]
        return next((why for why in refused if why), "") if all(refused) else ""

    def refusal(
        self,
        owners: tuple[OwnerId, ...],
        driver: str,
        *,
        network: bool,
        uses: tuple[str, ...] = (),
    ) -> str | None:
        """Return why a task is refused, if it is.

        What is not lent to an owner is for that owner not there.
        """
        if self.pause and self._rules.is_foreign(owners):
            return self.pause
        lends = self._rules.lends_to(owners, self._lends)
        for name in uses:
            if name not in lends:
                return f"this worker {not_lent(name, lends)}"
        opened = self._opened.get(driver)
        return self._rules.refusal(owners, driver, network=network, opened=opened)

    def refusal_of(
        self, owners: tuple[OwnerId, ...], assignment: Assignment
    ) -> str | None:
        """Return why this work is refused, if it is."""
        work, is_gang = assignment.task.work, len(assignment.gang) > 1
        network = uses_network(work)
        refused = self.refusal(owners, work.driver, network=network, uses=work.uses)
        if refused and network and not work.network:
            refused = f"{refused}; its Python environment is made with one"
        return refused or (
            self._rules.parted(owners) if work.network and is_gang else None
        )

    def told(self, peer: NodeId, now: float) -> Lending:
        """Return the terms that a scheduler may see."""
        drivers = self._rules.drivers
        admission = self._roster.get(peer, now)
        if admission is None or not self._rules.is_foreign((admission.owner,)):
            owner = self._rules.own if admission is None else admission.owner
            weaker, lends = self.weaker, self._lends
            return Lending(drivers, weaker=weaker, lends=lends, owner=owner)
        owners = (admission.owner,)
        plain = {d: self.refusal(owners, d, network=False) for d in drivers}
        wired = {d: self.refusal(owners, d, network=True) for d in drivers}
        whys = (*plain.values(), *wired.values())
        return Lending(
            tuple(driver for driver, why in plain.items() if why is None),
            tuple(driver for driver, why in wired.items() if why is None),
            next((why for why in whys if why is not None), ""),
            self._rules.lends_to(owners, self._lends),
            admission.owner,
            self.weaker,
        )
