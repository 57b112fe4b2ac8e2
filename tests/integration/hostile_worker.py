"""A node of somebody who lies: it runs tasks, and gives other results than theirs.

Run: python hostile_worker.py PYTHON -m shoal.cli up ...
"""

import sys
from pathlib import Path

from shoal.cli import main
from shoal.drivers import RunOrder
from shoal.model.ids import BlobId
from shoal.runtime.artifacts.staging import TaskStaging

_gather = TaskStaging._gather


def lie(
    self: TaskStaging, directory: Path, order: RunOrder, holder: str
) -> tuple[BlobId, tuple[str, ...]]:
    """Write something else into every output before it is kept."""
    for path in directory.rglob("*.txt"):
        path.write_text("a lie\n")
    return _gather(self, directory, order, holder)


if __name__ == "__main__":
    TaskStaging._gather = lie  # type: ignore[method-assign]
    sys.argv = ["shoal", *sys.argv[4:]]
    main()
