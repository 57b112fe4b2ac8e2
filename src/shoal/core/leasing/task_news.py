"""What a worker tells a scheduler of an attempt that goes on."""

from __future__ import annotations

from shoal.core.events import TaskProgressed, TaskSaved, TaskStaged
from shoal.protocol.messages import Checkpoint, Progress, Staging


def news_of(
    event: TaskProgressed | TaskStaged | TaskSaved, seq: int
) -> Progress | Staging | Checkpoint:
    """Return a fact about an attempt as a message; `seq` rises with each of them."""
    attempt = event.attempt
    match event:
        case TaskProgressed(_, fraction, metrics):
            return Progress(
                attempt=attempt, seq=seq, fraction=fraction, metrics=metrics
            )
        case TaskStaged(_, fetched, total):
            return Staging(
                attempt=attempt, seq=seq, fetched_bytes=fetched, total_bytes=total
            )
        case TaskSaved(_, tree, path):
            return Checkpoint(attempt=attempt, seq=seq, tree=tree, path=path)
