"""Planted bugs of jobs that go to another scheduler, and the seeds that find them."""

# ruff: noqa: ANN401 - They take the places of methods that only a machine calls.

from typing import Any, Final

from shoal.core.records.records import JobRecord
from shoal.core.scheduling.notices import Consequence
from shoal.core.succession.forwarding import FORWARDS_MAX, Forwarding, is_bound
from shoal.core.succession.kept_jobs import TermLog
from shoal.core.succession.succession import Succession
from shoal.model.ids import JobId, NodeId

_succession: Any = vars(Succession)
_let_go = _succession["_let_go"]


def granted_and_kept(
    self: Any, job: JobId, to: NodeId, term: int, *, forwarded: bool = False
) -> list[Consequence]:
    """Let another scheduler have a job, and go on with it."""
    if forwarded:
        return [*self._leading.resume(self._led[job])]
    let_go: list[Consequence] = _let_go(self, job, to, term)
    return let_go


def taken_without_files(self: Any, _held: Any) -> None:
    """Take a job up whose files are not there."""
    self.whole = len(self.trees)


def gone_while_it_runs(self: Any, record: JobRecord, now: float) -> bool:
    """Forward a job though some of its tasks run here."""
    if record.state != "active" or self._succession.is_led(record.job.id):
        return False
    return bool(record.forwards < FORWARDS_MAX and not is_bound(record.job))


FORWARD_BUGS: Final[tuple[tuple[str, Any, str, Any], ...]] = (
    ("granted and kept", Succession, "_let_go", granted_and_kept),
    ("taken without its files", TermLog, "look", taken_without_files),
    ("gone while it runs", Forwarding, "_may_go", gone_while_it_runs),
)
"""A name, and what of what is replaced by what."""

FORWARD_FOUND_BY: Final = {
    "granted and kept": 0,
    "taken without its files": 3,
    "gone while it runs": 4,
}
"""A seed that finds each, and that breaks no promise without it."""
