"""A task's identity: what its environment says about rank, peers and job."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.errors import UsageError
from shoal.train.exchange import Exchange, FolderExchange, TaskExchange
from shoal.train.settings import OVER, params_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = "SHOAL_EXCHANGE"
"""A folder that joins processes of one machine, where there is no node."""

RECIPE: Final = "SHOAL_RECIPE"
AGGREGATE: Final = "aggregate"
_ROLE: Final = re.compile(r"(.*?)(aggregate|train)(?:-(\d+))?\.(\d+)")


class TaskContext(msgspec.Struct, frozen=True, kw_only=True):
    """What recipes need to know about the task they run in."""

    recipe: str = ""
    name: str = ""  # its place in the job, such as `train.3`
    index: int = 0
    life: int = 1  # rises with every attempt of the task
    folder: str = ""
    socket: str = ""
    scheduler: str = ""  # the node that accepted the job
    spans: bool = False  # whether all tasks of its gang are one worker

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TaskContext:
        """Read the context from environment variables."""
        job = environment.get("SHOAL_JOB_ID", "")
        task = environment.get("SHOAL_TASK_ID", "")
        return cls(
            recipe=environment.get(RECIPE, ""),
            name=task.removeprefix(f"{job}."),
            index=int(environment.get("SHOAL_TASK_INDEX", "0")),
            life=life_of(environment.get("SHOAL_ATTEMPT", "")),
            folder=environment.get(FOLDER, ""),
            socket=environment.get("SHOAL_SOCKET", ""),
            scheduler=environment.get("SHOAL_ATTEMPT", "").rpartition(":")[0],
            spans=params_of(environment).get(OVER) == "machines",
        )

    @property
    def worker(self) -> int:
        """The number of the worker that this task is, or is a part of."""
        found = _ROLE.fullmatch(self.name) if self.spans else None
        return int(found[3] or 0) if found else self.index

    @property
    def is_aggregator(self) -> bool:
        """Whether this task is the aggregator of its job."""
        return self.name == self.aggregator

    @property
    def aggregator(self) -> str:
        """The aggregator for this task: of its step, and of its point of a sweep."""
        found = _ROLE.fullmatch(self.name)
        if found is None:
            return f"{AGGREGATE}.0"
        step, role, point, index = found.groups(default="")
        number = index if role == AGGREGATE else point or "0"
        number = "0" if self.spans else number
        return f"{step}{AGGREGATE}.{number}"

    def workers(self, most: int) -> tuple[str, ...]:
        """Return all names that up to `most` workers of this aggregator may have.

        In a sweep, names carry the number of the point; the first may do without.
        """
        found = _ROLE.fullmatch(self.name)
        step, number = (found[1], found[4]) if found else ("", "0")
        if self.spans:
            return tuple(f"{step}train-{index}.0" for index in range(most))
        roles = [f"{step}train-{number}", *([f"{step}train"] if number == "0" else [])]
        return tuple(f"{role}.{index}" for role in roles for index in range(most))

    def exchange(self) -> Exchange:
        """Return the exchange with the job's other tasks."""
        if self.folder:
            return FolderExchange(Path(self.folder), self.name)
        if self.socket:
            return TaskExchange(self.name, Path.cwd() / ".exchange")
        raise UsageError(
            "this task cannot reach the others of its job",
            because=f"neither SHOAL_SOCKET nor {FOLDER} is set",
            hint="start it as a task: `shoal run examples/diloco-gpt.yaml`",
        )


def life_of(attempt: str) -> int:
    """Return a number that rises with every attempt: generation, then sequence."""
    generation, _, sequence = attempt.rpartition(":")[2].partition(".")
    if not (generation.isdecimal() and sequence.isdecimal()):
        return time.time_ns() // 1_000_000
    return (int(generation) << 32) + int(sequence)
