"""A training program's parameters: defaults, then the job's, then flags."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shoal.errors import UsageError
from shoal.train.settings import TrainSettings, params_of, settings_of
from shoal.train.task_context import TaskContext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


PROGRAM_PARAMS: Final = "program_params"
"""What programs call: their params are also read from their source, by this name."""

LOCAL_APART: Final = 100
"""More than tasks of a job, so that no two processes draw the same batches."""


NOT_OWN: Final = ("program", "data_seed", "index")
"""Params of any program; `index` is that of an array."""


def program_params(**defaults: Any) -> SimpleNamespace:  # noqa: ANN401
    """Return all params as attributes; those that were given are in `all` as well.

    A param is of the type of its default. Those of all recipes, such as `rounds`, need
    not be listed. `data_seed` differs between the workers of a job.
    """
    if "data_seed" in defaults:
        raise UsageError(
            "'data_seed' is no param of a program's own",
            because="every program has it, another for each worker",
            hint=f"leave it out of `{PROGRAM_PARAMS}(...)`: it is there",
        )
    given = {**params_of(os.environ), **flags(sys.argv[1:])}
    values: dict[str, Any] = {}
    for name, default in defaults.items():
        value = given.get(name, default)
        try:
            values[name] = like(default, value)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"param '{name}' cannot be {value!r}",
                because=f"it is a number like {default}",
            ) from error
    rest = {name: value for name, value in given.items() if name not in defaults}
    known = {*defaults, *TrainSettings.__struct_encode_fields__, *NOT_OWN}
    if unknown := [name for name in rest if name not in known]:
        raise UsageError(
            f"this program has no param '{unknown[0]}'",
            because=f"its params are {', '.join(sorted(known))}",
        )
    typed: dict[str, Any] = msgspec.to_builtins(settings_of(rest))
    everything = {**{name: typed.get(name, rest[name]) for name in rest}, **values}
    seed = worker_seed(int(values.get("seed", 0)))
    data_seed = int(given.get("data_seed", seed))
    found = {**typed, **everything, "data_seed": data_seed, "all": everything}
    return SimpleNamespace(**found)


def worker_seed(seed: int = 0) -> int:
    """Return a seed for data that differs between all processes of a job."""
    around = TaskContext.of(os.environ)
    local = int(os.environ.get("LOCAL_RANK", "0"))  # of several processes of a task
    rank = around.index if around.spans else local
    return seed * 1_000_003 + (around.worker + rank * LOCAL_APART) * 7_919


def flags(words: Sequence[str]) -> Mapping[str, str]:
    """Return `--name value` pairs."""
    found: dict[str, str] = {}
    for place in range(0, len(words), 2):
        name = words[place]
        if not name.startswith("--") or place + 1 == len(words):
            raise UsageError(
                f"'{name}' is not understood",
                because="arguments are pairs, such as --lr 0.001",
            )
        found[name.removeprefix("--")] = words[place + 1]
    return found


def like(default: Any, value: Any) -> Any:  # noqa: ANN401
    """Return `value` as the type of `default`; raise `ValueError` if it cannot be."""
    if isinstance(default, bool):
        return str(value).lower() in ("true", "1", "yes")
    found = type(default)(value)
    if isinstance(found, int) and isinstance(value, float) and float(found) != value:
        raise ValueError(f"{value} is no {type(default).__name__}")
    return found
