"""Who gives what its loop keeps, such as an optimiser's state, and who gets it.

Workers that come late or resume need what the loops of others keep. One worker gives
it, the *donor*: always the same, as long as it is there. It is asked when somebody
lacks it and what is known is old, and at the end of the run, to be saved.

    asked (after so many syncs) --donor names a file--> kept --at the end--> saved
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from shoal.train.diloco.events import SaveInner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.train.diloco.messages import KeptState, Status


@final
class InnerHandover:
    """What the loops of one run keep, as far as its aggregator knows."""

    def __init__(self, lasts: int) -> None:
        """Take what is more than `lasts` syncs behind for old."""
        self.kept: KeptState | None = None
        self.donor = ""  # who gives it
        self.asked = 0  # after how many syncs it is wanted
        self.saved: Literal["no", "under way", "yes"] = "no"
        self._lasts = lasts
        self._holder = ""  # a worker, or nobody but us

    def forget(self, worker: str) -> None:
        """Do without what a worker kept that is gone."""
        if self._holder == worker:
            self.kept, self._holder, self.asked = None, "", 0

    def take(
        self,
        trained: Mapping[str, Status],
        closed: int,
        *,
        is_lacked: bool,
        is_last: bool,
    ) -> list[SaveInner]:
        """Ask for a loop's kept state if a worker lacks it; save the last one.

        `trained` are workers that have it, with the donor if it is one of them.
        """
        donor = self._find_donor(trained)
        if donor is None:
            return []
        if is_lacked and self._is_old(closed) and not self.comes(closed):
            self.asked = closed
        given = donor.inner
        if given is None or not self.asked or given.syncs < self.asked:
            return []
        self.kept, self._holder = given, donor.worker
        if not is_last or self.saved != "no":
            return []
        self.saved = "under way"
        return [SaveInner(donor.worker, given)]

    def comes(self, closed: int) -> bool:
        """Whether what a loop keeps was asked for lately, and is not here."""
        if not self.asked or self.asked < closed - self._lasts:
            return False
        return self.kept is None or self.kept.syncs < self.asked

    def needs(self, worker: str) -> bool:
        """Whether a worker must stay, for what it keeps is not saved yet."""
        return worker == self.donor and bool(self.asked) and self.saved != "yes"

    def _is_old(self, closed: int) -> bool:
        return self.kept is None or self.kept.syncs < closed - self._lasts

    def _find_donor(self, trained: Mapping[str, Status]) -> Status | None:
        """Return who gives it: the worker that is furthest, if any keeps something."""
        if (known := trained.get(self.donor)) is not None:
            return known
        able = [s for s in trained.values() if s.merged and not s.leaving]
        first = min(able, key=lambda s: (-s.merged, s.worker), default=None)
        self.donor = "" if first is None else first.worker
        return first
