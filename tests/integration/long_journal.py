"""A journal as years of use leave it, written at once instead."""

from collections.abc import Iterator

from tests.integration.live_shoal import LiveNode

from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Entry,
    Finished,
    Incarnated,
    Returned,
    Submitted,
    encode,
)
from shoal.model.derive import derive
from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, OwnerId
from shoal.model.spec.submission import load_spec
from shoal.protocol.messages import Outcome
from shoal.store.journal import LAZY_S, Journal

ENDED = 10_100
WAITING = 10_000
"""With five entries for each that ended, a node compacts the journal at once."""

_SPEC = "command: [{program}]\nresources: {{gpu: {gpus}}}"


def write_long_journal(node: LiveNode) -> None:
    """Give a node that never ran WAITING jobs that wait, and ENDED that ended."""
    journal = Journal.open(node.home.journal)
    journal.start(lambda call: call(), on_synced=_ignored, on_failed=_raised)
    for entry in _entries(node.identity.node, node.identity.node):
        journal.append(*encode(entry), within_s=LAZY_S)
    journal.close()


def _entries(scheduler: NodeId, owner: str) -> Iterator[Entry]:
    yield Incarnated(1)
    spec = load_spec(_SPEC.format(program="true", gpus=1), "yaml")
    for number in range(1, ENDED + 1):
        job = derive(spec, JobId(f"old{number}"), OwnerId(owner))
        yield Submitted(job, wall_s=1e9 + number)
        [task] = job.tasks()
        for trial in (1, 2):
            attempt = Attempt(scheduler, 1, 2 * number + trial)
            worker = NodeId("12D3KooWGone")
            place = AttemptPlace(
                task.id, attempt, worker, LeaseId(f"{worker}/1/{number}")
            )
            yield Assigned((place,))
            if trial == 1:
                yield Returned(task.id, attempt, failures=1, crashes=0, reason="exit 1")
            else:
                outcome = Outcome("exited", exit_code=0)
                yield Finished(task.id, "done", attempt=attempt, outcome=outcome)
    spec = load_spec(_SPEC.format(program="true", gpus=8), "yaml")
    for number in range(1, WAITING + 1):
        job = derive(spec, JobId(f"waits{number}"), OwnerId(owner))
        yield Submitted(job, wall_s=1.1e9 + number)


def _ignored(number: int) -> None:
    del number


def _raised(error: Exception) -> None:
    raise error
