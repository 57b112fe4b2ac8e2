"""What `scancel` ends: jobs, tasks of arrays, and jobs that still wait for others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from shoal.errors import UsageError
from shoal.model.spec.points import parse_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.api.client.client import Client
    from shoal.cli.slurm.ledger import BatchLedger
    from shoal.cli.slurm.queue import QueueRow

REASON: Final = "scancel"
_JOB: Final = re.compile(r"(\d{1,10})(?:_(\d{1,10}|\[[0-9,:-]+\]))?")


def read_job(word: str) -> list[tuple[int, int | None]]:
    """Return the jobs, and the indexes of tasks, that a word means."""
    found = _JOB.fullmatch(word)
    if found is None:
        raise UsageError(
            f"scancel: '{word}' is no job", hint="scancel 12, 12_3 or 12_[0-4]"
        )
    number, tasks = int(found[1]), found[2]
    if tasks is None:
        return [(number, None)]
    return [(number, index) for index in parse_array(tasks.strip("[]"))]


def cancel(
    client: Client,
    ledger: BatchLedger,
    rows: Iterable[QueueRow],
    whole: set[int] | None,
) -> Iterator[str]:
    """Cancel what the rows are about; yield a line about each.

    `whole`: numbers by which jobs were named; None means that all rows are meant.
    """
    done: set[int] = set()
    for row in rows:
        batch = row.batch
        if batch.number in done:
            continue
        if batch.state == "held":
            batch.state = batch.ended = "cancelled"
            ledger.save(batch)
        elif batch.is_array and whole is not None and batch.number not in whole:
            client.cancel(batch.job, REASON, str(row.place))
            yield f"cancelled {row.id}"
            continue
        else:
            client.cancel(batch.job, REASON)
        done.add(batch.number)
        yield f"cancelled {batch.number}"
