"""What was pulled of a job, in words and in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.cli.printing import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api.shipping import Taken


def taken_text(taken: Taken) -> str:
    """Say what was written for one task."""
    files = "1 file" if taken.files == 1 else f"{taken.files} files"
    what = "checkpoint" if taken.checkpoint else "outputs"
    return f"{what}  {taken.folder}  ({files}, {size_text(taken.bytes)})"


def taken_fields(taken: Iterable[Taken]) -> list[dict[str, Any]]:
    """Return what was written, for JSON."""
    return [
        {
            "task": each.task,
            "folder": each.folder,
            "files": each.files,
            "bytes": each.bytes,
            "checkpoint": each.checkpoint,
        }
        for each in taken
    ]
