"""Downloaded outputs of a job, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.cli.display.printing import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api.client.shipping import PulledOutputs


def taken_text(taken: PulledOutputs) -> str:
    """Describe the files written for one task."""
    files = "1 file" if taken.files == 1 else f"{taken.files} files"
    what = "checkpoint" if taken.checkpoint else "outputs"
    return f"{what}  {taken.folder}  ({files}, {size_text(taken.bytes)})"


def taken_fields(taken: Iterable[PulledOutputs]) -> list[dict[str, Any]]:
    """Return the files written, for JSON."""
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
