"""Check the params of a recipe before its job is accepted.

A recipe has settings of its own, and the program that it runs has params. Those of a
program that comes with shoal are read from its source, without running it: it would
import torch, which a node may not have. A file of the job's workdir is not here; its
params are checked when it runs.
"""

from __future__ import annotations

import ast
import functools
import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shoal import validation
from shoal.errors import SpecError, did_you_mean
from shoal.train.arguments import PROGRAM_PARAMS, like
from shoal.train.programs import PROGRAMS
from shoal.train.settings import INNER, TrainSettings
from shoal.train.single.alone import translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AT_LEAST: Final = {
    "batch": 1,
    "context": 1,
    "corpus_bytes": 1,
    "decay": 0,
    "heads": 1,
    "layers": 1,
    "lr": 0,
    "micro_batches": 1,
    "seed": 0,
    "threads": 1,
    "warmup": 0,
    "weight_decay": 0,
    "width": 1,
}
"""The least of each number that a program of ours takes."""

ONE_OF: Final = {
    "optimizer": ("adamw", "momentum", "sgd"),
    "precision": ("bfloat16", "float32"),
}
"""The words that some of their params may be."""


PIPELINE_PROGRAM: Final = "pipeline_gpt"


def check_params(recipe: str, params: Mapping[str, Any], default: str) -> None:
    """Raise `SpecError` at the first param that the recipe would not take.

    It runs the program `default`, unless the params name another.
    """
    if recipe == "train" and "program" not in params:
        params, _ = translated(params)
    program = str(params.get("program", default))
    own = _of_program(program)
    for name, value in params.items():
        if name in TrainSettings.__struct_encode_fields__:
            _check_setting(name, value)
        elif own is not None and name in own:
            _check_own(name, value, own[name])
        elif name == "data_seed":
            _check_own(name, value, 0)
        elif own is not None and name != "program":
            raise _unknown(name, recipe, program, own)
    _check_inner(recipe, [n for n in params if n in INNER.values()], program)
    if recipe == "eval" and not params.get("model"):
        raise SpecError(
            "there is nothing to measure",
            path="$.params.model",
            because="no param `model` names a file of weights",
            hint="write `params: {model: model.safetensors}`",
        )


def _check_inner(recipe: str, inner: Sequence[str], program: str) -> None:
    """Check of what a worker is made; `inner` are the params that say so."""
    if not inner:
        return
    if recipe != "diloco":
        raise SpecError(
            f"a worker of {recipe} is no group of processes",
            path=f"$.params.{inner[0]}",
            because="only a worker of diloco can be one",
            hint="use recipe diloco, or leave it out",
        )
    if len(inner) > 1:
        raise SpecError(
            "a worker is a group of one kind",
            path=f"$.params.{inner[1]}",
            because=f"{' and '.join(inner)} are given",
            hint="leave all but one out",
        )
    by_layers = inner[0] == INNER["inner_pipeline"]
    if program in PROGRAMS and by_layers != (program == PIPELINE_PROGRAM):
        raise SpecError(
            f"program {program} cannot be split {'by layers' if by_layers else 'so'}",
            path=f"$.params.{inner[0]}",
            because=f"of these only {PIPELINE_PROGRAM} gives its layers one by one, "
            "and needs them so",
            hint=f"write `program: {PIPELINE_PROGRAM}` with `inner: {{pipeline: 2}}`, "
            "and others with `inner: {ddp: 2}` or `{fsdp: 2}`",
        )


def _of_program(program: str) -> Mapping[str, Any] | None:
    """Return the params of a program of ours; None for a file of the workdir."""
    if program in PROGRAMS:
        return _read(program)
    if program.endswith(".py"):
        return None
    raise SpecError(
        f"there is no program '{program}'",
        path="$.params.program",
        because=f"those that come with shoal are {', '.join(PROGRAMS)}",
        hint="or name a file of the workdir, such as `program: train.py`",
    )


@functools.cache
def _read(program: str) -> Mapping[str, Any]:
    """Return names and defaults in the one call of `program_params` in a source."""
    spec = find_spec(f"shoal.train.programs.{program}")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    [call] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == PROGRAM_PARAMS
    ]
    return {
        each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg
    }


def _check_setting(name: str, value: Any) -> None:  # noqa: ANN401
    try:
        found = msgspec.convert({name: value}, TrainSettings, strict=False)
    except msgspec.ValidationError as error:
        what, path = validation.told(error)
        allowed = validation.advice(TrainSettings, path)
        raise _refused(
            name, value, f"{what}; {allowed}" if allowed else what
        ) from error
    [value] = [v for n, v in msgspec.to_builtins(found).items() if n == name]
    _check_finite(name, value)


def _check_own(name: str, value: Any, default: Any) -> None:  # noqa: ANN401
    try:
        found = like(default, value)
    except (TypeError, ValueError, OverflowError):
        kind = validation.KINDS.get(type(default).__name__, "a value")
        raise _refused(name, value, f"expected {kind} like {default!r}") from None
    _check_finite(name, found)
    least = AT_LEAST.get(name)
    if least is not None and found < least:
        raise _refused(name, value, f"expected at least {least}")
    if name in ONE_OF and found not in ONE_OF[name]:
        raise _refused(name, value, f"expected one of {', '.join(ONE_OF[name])}")


def _check_finite(name: str, value: Any) -> None:  # noqa: ANN401
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(name, value, "expected a finite number")


def _refused(name: str, value: object, because: str) -> SpecError:
    return SpecError(
        f"param '{name}' cannot be {value!r}",
        path=f"$.params.{name}",
        because=because,
        hint="docs/guides/training.md lists the params of recipes",
    )


def _unknown(name: str, recipe: str, program: str, own: Mapping[str, Any]) -> SpecError:
    known = sorted(
        {*own, *TrainSettings.__struct_encode_fields__, "data_seed", "program"}
    )
    return SpecError(
        f"recipe {recipe} has no param '{name}'",
        path=f"$.params.{name}",
        because=f"with program {program} they are {', '.join(known)}",
        hint=did_you_mean(name, known) or "leave it out",
    )
