"""What a submitter may not expect of a job, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.model.job import Group, Job


TASKS_FOLLOWED_MAX: Final = 10_000
"""Tasks of a job whose output is shown if none is named: the first ones."""


def notes(job: Job) -> list[str]:
    """Return what the submitter of a valid job should be told at once."""
    return [
        *_gangs_without_network(job),
        *_outputs_of_one_name(job),
        *_too_many_to_follow(job),
    ]


def _gangs_without_network(job: Job) -> Iterator[str]:
    for group in job.groups:
        if _is_gang_of_own_program(group) and not group.tasks[0].work.network:
            name = group.id.rpartition(".")[2]
            yield (
                f"the {len(group.tasks)} tasks of the gang '{name}' cannot connect to "
                "each other without a network: `network: true` (`--network`) adds it"
            )


def _outputs_of_one_name(job: Job) -> Iterator[str]:
    """Say where outputs of two needs of a step may lie on top of each other."""
    groups = {group.id: group for group in job.groups}
    for group in job.groups:
        owner: dict[str, str] = {}
        for needed in group.needs if group.takes_outputs else ():
            first, name = groups[needed].tasks[0], needed.rpartition(".")[2]
            for output in first.work.outputs if not first.label else ():
                if (other := owner.get(output)) is not None:
                    yield (
                        f"the steps '{other}' and '{name}' both leave {output}: where "
                        f"files have one name, '{group.id.rpartition('.')[2]}' gets "
                        f"that of '{name}', which it lists last"
                    )
                owner[output] = name


def _too_many_to_follow(job: Job) -> Iterator[str]:
    if sum(len(group.tasks) for group in job.groups) > TASKS_FOLLOWED_MAX:
        yield (
            f"`shoal logs` shows the output of the first {TASKS_FOLLOWED_MAX:,} tasks; "
            "name another to see its own: `shoal logs JOB 123456`"
        )


def _is_gang_of_own_program(group: Group) -> bool:
    """Recipes connect their tasks by themselves."""
    return group.gang_min > 1 and not group.tasks[0].work.recipe
