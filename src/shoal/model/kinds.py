"""Kinds of work an owner lets others run on a machine, and their drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.model.job import Scalar, Task, Work

COMMAND: Final = "command"
IMAGE: Final = "image"
RECIPE: Final = "recipe"

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    COMMAND: ("process", "python"),  # A function is code as well.
    IMAGE: ("container",),
    RECIPE: ("recipe",),
}
"""The drivers that run work of each kind."""

TaskNetwork = Literal["none", "internet", "all"]
"""What a task may reach: nothing, what is outside the lender's networks, or all."""

Strangers = Literal["no", "confined", "limited", "any"]
"""Whose tasks run on a machine besides its owner's: nobody's, those of members where
tasks are confined, where the kernel limits them as well, or those of every member."""

Overlay = Literal["random", "flood", "mst", "nearest"]
"""Which of its linked peers a node tells what it hears of load: some that are drawn for
each round, all, its neighbours in a tree of least cost, or these and the nearest."""

NETWORKED: Final = "+network"
"""Ends what a task needs of a worker, besides a driver, if it uses the network."""

PROGRAM: Final = "program"
"""The param of recipes that names what is trained; a file is the job's own code."""


def allowed(text: str) -> tuple[str, ...]:
    """Return the kinds in a text such as `recipe,command`; without a text, all.

    Raises `UsageError` at a word that is none.
    """
    words = tuple(dict.fromkeys(w.strip() for w in text.split(",") if w.strip()))
    for word in words:
        if word not in KINDS:
            raise UsageError(
                f"'{word}' is not a kind of task",
                because=f"there are {', '.join(KINDS)}",
                hint="write it like --allow recipe,command; --no-worker allows nothing",
            )
    return words or tuple(KINDS)


def need_of(work: Work) -> str:
    """Return what placement looks for: a driver, and a network if it must be."""
    return f"{work.driver}{NETWORKED}" if uses_network(work) else work.driver


def uses_network(work: Work) -> bool:
    """Whether a worker must give it a network: for itself, or for what is made first.

    A Python environment is made of packages that come from an index.
    """
    return work.network or work.python.is_made


def driver_of(need: str) -> str:
    """Return the driver in a need."""
    return need.removesuffix(NETWORKED)


def needs_met(
    drivers: Iterable[str], networked: Iterable[str] | None = None
) -> tuple[str, ...]:
    """Return all needs that a worker with these drivers meets; None: all of them."""
    plain = tuple(drivers)
    wired = plain if networked is None else tuple(networked)
    return (*plain, *(f"{driver}{NETWORKED}" for driver in wired))


def is_built_in(work: Work, params: Mapping[str, Scalar]) -> bool:
    """Whether a program that comes with shoal runs, and no code that the job brings.

    A folder, a setup, variables, packages or a program in a file would be a way to
    bring some.
    """
    own = work.argv or work.setup or work.env or work.image or work.workdir
    lent = work.python.is_made or work.mounts or work.caches
    is_file = str(params.get(PROGRAM, "")).endswith(".py")
    return bool(work.recipe) and not own and not lent and not is_file


def foreign(task: Task) -> str | None:
    """Say why a task is not of the kind that it claims to be, if so."""
    if task.work.driver != RECIPE or is_built_in(task.work, task.params):
        return None
    return "driver recipe runs nothing but programs that come with shoal"
