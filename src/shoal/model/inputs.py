"""What a task is handed of the tasks that its group needs: their outputs.

The outputs of a task lie in the next work directory where the task wrote them. Those of
the points of a sweep or array would lie on top of each other, so each point has a
folder of its own, `STEP/LABEL`. Trees are laid down in the order returned, and a later
file replaces an earlier one: needs in the order in which the step lists them, and of a
gang the first rank last, because that is the one which writes what counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.model.job import Input

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shoal.model.ids import BlobId, TaskId
    from shoal.model.job import Group, Task


def inputs_from(
    needed: Iterable[Group], outputs: Mapping[TaskId, BlobId]
) -> Iterator[Input]:
    """Go through what these groups hand on; `outputs` has what their tasks left."""
    for group in needed:
        tasks = reversed(group.tasks) if group.gang_min else group.tasks
        for task in tasks:
            if tree := outputs.get(task.id):
                yield Input(tree, _folder(group, task))


def pulled_folder(group: Group, task: Task) -> str:
    """Return the folder of a point's outputs among those of its job.

    Nothing if it is no point of a sweep: then the id of the task is its folder.
    """
    if task.label.isdigit():
        return ""
    folder = _folder(group, task).removeprefix("main/")
    return f"{folder}/{task.index}" if folder and group.gang_min else folder


def _folder(group: Group, task: Task) -> str:
    if not task.label:
        return ""
    name = group.id.removeprefix(f"{task.job}.")
    # Each point of a sweep of gangs is a group of its own, with its number.
    step = name.rpartition("-")[0] if group.gang_min else name
    return f"{step}/{task.label}"
