"""What others may run on a machine, in the words of its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
                f"'{word}' is nothing that others may or may not run",
                because=f"there are {', '.join(KINDS)}",
                hint="write it like --allow recipe,command; --no-worker allows nothing",
            )
    return words or tuple(KINDS)


def is_built_in(work: Work, params: Mapping[str, Scalar]) -> bool:
    """Whether a program that comes with shoal runs, and no code that the job brings.

    A folder, a setup, variables or a program in a file would be a way to bring some.
    """
    own = work.argv or work.setup or work.env or work.image or work.workdir
    is_file = str(params.get(PROGRAM, "")).endswith(".py")
    return bool(work.recipe) and not own and not is_file


def foreign(task: Task) -> str | None:
    """Say why a task is not of the kind that it claims to be, if so."""
    if task.work.driver != RECIPE or is_built_in(task.work, task.params):
        return None
    return "driver recipe runs nothing but programs that come with shoal"
