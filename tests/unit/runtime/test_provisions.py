"""What a scheduler gives with an assignment, and what it never does."""

from pathlib import Path
from typing import Any, cast

import pytest

from shoal.model.ids import Attempt, BlobId, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Task
from shoal.protocol.messages import Checkpoint
from shoal.runtime.provisions import Provisions

NOTHING = cast("Any", None)
TASK = Task(id=TaskId("j.g.0"), job=JobId("j"), group=GroupId("j.g"))
TOLD = Checkpoint(
    attempt=Attempt(NodeId("s"), 1, 1), seq=1, tree=BlobId("0" * 64 + "-1")
)


def provisions(tmp_path: Path, *, is_verified: bool) -> Provisions:
    return Provisions(
        tmp_path / "checkpoints.json",
        NodeId("s"),
        NOTHING,
        NOTHING,
        lambda _: None,
        lambda _: True,
        lambda _: is_verified,
    )


def test_a_verified_task_never_goes_on_from_what_another_worker_left(
    tmp_path: Path,
) -> None:
    provisions(tmp_path, is_verified=True).saved(TASK, TOLD)

    with pytest.raises(RuntimeError, match="no running event loop"):
        # It would be fetched, and there is no loop here to do that.
        provisions(tmp_path, is_verified=False).saved(TASK, TOLD)
