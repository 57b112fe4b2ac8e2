"""What a submitter may not expect of a job, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.model.job import Group, Job


def notes(job: Job) -> list[str]:
    """Return what the submitter of a valid job should be told at once."""
    return list(_gangs_without_network(job))


def _gangs_without_network(job: Job) -> Iterator[str]:
    for group in job.groups:
        if _is_gang_of_own_program(group) and not group.tasks[0].work.network:
            name = group.id.rpartition(".")[2]
            yield (
                f"the {len(group.tasks)} tasks of the gang '{name}' cannot connect to "
                "each other without a network: `network: true` (`--network`) adds it"
            )


def _is_gang_of_own_program(group: Group) -> bool:
    """Recipes connect their tasks by themselves."""
    return group.gang_min > 1 and not group.tasks[0].work.recipe
