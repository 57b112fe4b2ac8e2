"""Bugs of environments, housekeeping and drains, for `planted`."""

from collections.abc import Sequence
from typing import Any, Final

from shoal.core.deadlines import DeadlineHeap
from shoal.core.durability.journal import Entry
from shoal.core.environments.events import NeededEnvironment
from shoal.core.environments.shelf import EnvironmentShelf, Standing
from shoal.core.events import Effect
from shoal.core.housekeeping.end_calls import EndCalls
from shoal.core.housekeeping.retention import Retention
from shoal.core.housekeeping.usage_ledger import UsageLedger
from shoal.core.leasing.worker import Worker
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import Attempt, EnvironmentId, JobId, OwnerId
from shoal.sim.node import assembly

_want = EnvironmentShelf.want
_evict = EnvironmentShelf._evict
_begin_calls = EndCalls.__init__
_close_call = EndCalls._close
_remove = Retention._remove
_new_worker = Worker.__init__


def environment_not_waited_for(
    self: EnvironmentShelf,
    attempt: Attempt,
    need: NeededEnvironment,
    owners: tuple[OwnerId, ...],
) -> Standing:
    """Start a task though another still makes its environment."""
    standing = _want(self, attempt, need, owners)
    return "ready" if standing == "wait" else standing


def environment_removed_in_use(self: EnvironmentShelf) -> list[EnvironmentId]:
    """Make room without asking who uses what."""
    self._users.clear()
    return _evict(self)


def open_calls_forgotten(
    self: EndCalls, book: JobBook, heap: DeadlineHeap, now: float
) -> None:
    """Call nobody for jobs that ended in earlier lives."""
    _begin_calls(self, book, heap, now)
    for job in book.ended:
        self._due.drop(job)


def called_again(self: EndCalls, job: JobId, trouble: str) -> list[Effect]:
    """Forget to stop when a call was made."""
    effects = _close_call(self, job, trouble)
    if job in self._book.jobs:
        self._book.jobs[job].called = None
        self._due.set(job, 0.0)
    return effects


def files_gone_before_their_job(self: Retention, jobs: Sequence[JobId]) -> list[Effect]:
    """Delete files, and then write down why."""
    return _remove(self, jobs)[::-1]


def usage_lost_in_compaction(self: UsageLedger) -> list[Entry]:
    """Keep no sums."""
    return []


def drain_forgotten(self: Worker, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """Do not read how the last life ended."""
    _new_worker(self, *args, **{**options, "journal": ()})


def needs_lost_in_compaction(journal: Sequence[Entry]) -> list[Entry]:
    """Forget what work took."""
    del journal
    return []


UPKEEP_BUGS: Final = (
    ("needs lost in compaction", assembly, "needs_kept", needs_lost_in_compaction),
    ("open calls forgotten", EndCalls, "__init__", open_calls_forgotten),
    ("called again", EndCalls, "_close", called_again),
    ("files gone before their job", Retention, "_remove", files_gone_before_their_job),
    ("usage lost in compaction", UsageLedger, "kept", usage_lost_in_compaction),
    ("drain forgotten", Worker, "__init__", drain_forgotten),
    (
        "environment not waited for",
        EnvironmentShelf,
        "want",
        environment_not_waited_for,
    ),
    (
        "environment removed in use",
        EnvironmentShelf,
        "_evict",
        environment_removed_in_use,
    ),
)
