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
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shoal import validation
from shoal.errors import SpecError, did_you_mean
from shoal.task_words import IMAGES, SYNTHETIC, our_words, translated
from shoal.train.arguments import PROGRAM_PARAMS, like
from shoal.train.programs import PROGRAMS
from shoal.train.settings import INNER, OVER, TrainSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AT_LEAST: Final = {
    "batch": 1,
    "context": 1,
    "corpus_bytes": 1,
    "decay": 0,
    "epochs": 0,
    "heads": 1,
    "layers": 1,
    "loaders": -1,
    "lr": 0,
    "micro_batches": 1,
    "momentum": 0,
    "samples": 1,
    "seed": 0,
    "size": 0,
    "threads": 0,
    "warmup": 0,
    "weight_decay": 0,
    "width": 1,
}
"""The least of each number that a program of ours takes."""

ONE_OF: Final = {
    "optimizer": ("adamw", "momentum", "sgd"),
    "precision": ("bfloat16", "float32"),
    "schedule": ("constant", "cosine"),
}
"""The words that some of their params may be."""

OPTIMIZERS: Final = ("adam", "adamw", "rmsprop", "sgd")
"""Those of the program `images`."""


PIPELINE_PROGRAM: Final = "pipeline_gpt"

_REGISTERED: Final = re.compile(
    r"^@register_model\(.*\n(?:@.*\n)*def (\w+)", re.MULTILINE
)
"""A model in torchvision's source."""


def check_params(recipe: str, params: Mapping[str, Any], default: str) -> None:
    """Raise `SpecError` at the first param that the recipe would not take.

    It runs the program `default`, unless the params name another.
    """
    ours: Mapping[str, str] = {}
    program = str(params.get("program", default))
    if recipe == "train":
        ours = our_words(params)
        program = translated(params)["program"]
    own = _of_program(program)
    for name, value in params.items():
        word = ours.get(name, name)
        if own is not None and word in own:
            _check_own(name, value, own[word], word, program)
        elif word in TrainSettings.__struct_encode_fields__:
            _check_setting(name, value, word)
        elif name in ("data_seed", "index"):
            _check_own(name, value, 0, name, program)
        elif own is not None and name != "program":
            raise _unknown(name, recipe, program, [*_said(own, ours)])
    if program == IMAGES and recipe == "train":
        _check_images(translated(params))
    inner = [name for name in params if name in INNER.values()]
    _check_inner(recipe, sorted(inner, key=lambda name: name == OVER), program)
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
    inner = [name for name in inner if name != OVER]
    if not inner:
        raise SpecError(
            "a worker over several machines is a group",
            path=f"$.params.{OVER}",
            because="it is not said of how many processes, and of which kind",
            hint="write `inner: {pipeline: 2, over: machines}`",
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


def _said(own: Mapping[str, Any], ours: Mapping[str, str]) -> list[str]:
    """Return the params of a program in the words of whoever gives them."""
    theirs = {word: name for name, word in ours.items()}
    return [theirs.get(name, name) for name in own]


def _check_images(params: Mapping[str, Any]) -> None:
    """Check that a model and a dataset are named, as far as can be known here."""
    if not params.get("network"):
        raise SpecError(
            "no model is named",
            path="$.params.model",
            because="the job says how to train, but not what",
            hint='write it like "model": "resnet50"',
        )
    if not params.get("dataset"):
        raise SpecError(
            "no dataset is named",
            path="$.params.dataset",
            because="the job says how to train, but not on what",
            hint='name a folder that a worker shares, such as "cifar10", or '
            '"synthetic" for generated images',
        )
    network = str(params["network"])
    known = torchvision_models()
    if known and network not in known:
        raise SpecError(
            f"torchvision has no model '{network}'",
            path="$.params.model",
            because=f"there are {len(known)}, such as resnet18, resnet50 and vit_b_16",
            hint=did_you_mean(network, known) or "name one of these",
        )
    if "momentum" in params and params.get("optimizer") in ("adam", "adamw"):
        raise SpecError(
            f"{params['optimizer']} takes no momentum",
            path="$.params.momentum",
            because="only sgd and rmsprop do",
            hint='leave it out, or write "optimizer": "sgd"',
        )
    dataset = str(params["dataset"])
    if dataset.startswith("synthetic") and dataset not in SYNTHETIC:
        raise SpecError(
            f"there is no generated dataset '{dataset}'",
            path="$.params.dataset",
            because=f"there are {', '.join(SYNTHETIC)}",
            hint=did_you_mean(dataset, SYNTHETIC) or "name one of these",
        )


@functools.cache
def torchvision_models() -> tuple[str, ...]:
    """Return the names of torchvision's classifiers; none if it is not here.

    They are read from its source: to import it would load torch.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return ()
    found: set[str] = set()
    for source in (Path(spec.origin).parent / "models").glob("*.py"):
        found.update(_REGISTERED.findall(source.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def _check_setting(name: str, value: Any, word: str) -> None:  # noqa: ANN401
    try:
        found = msgspec.convert({word: value}, TrainSettings, strict=False)
    except msgspec.ValidationError as error:
        what, _ = validation.told(error)
        fields = msgspec.structs.fields(TrainSettings)
        [kind] = [each.type for each in fields if each.encode_name == word]
        allowed = validation.advice(kind, "$")
        raise _refused(
            name, value, f"{what}; {allowed}" if allowed else what
        ) from error
    [value] = [v for n, v in msgspec.to_builtins(found).items() if n == word]
    _check_finite(name, value)


def _check_own(
    name: str,
    value: Any,  # noqa: ANN401
    default: Any,  # noqa: ANN401
    word: str,
    program: str,
) -> None:
    """Check a param that is called `word` in the source of the program."""
    try:
        found = like(default, value)
    except (TypeError, ValueError, OverflowError):
        kind = validation.KINDS.get(type(default).__name__, "a value")
        raise _refused(name, value, f"expected {kind} like {default!r}") from None
    _check_finite(name, found)
    least = AT_LEAST.get(word)
    if least is not None and found < least:
        raise _refused(name, value, f"expected at least {least}")
    words = ONE_OF.get(word)
    if program == IMAGES and word == "optimizer":
        words = OPTIMIZERS
    if words is not None and found not in words:
        raise _refused(name, value, f"expected one of {', '.join(words)}")


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


def _unknown(name: str, recipe: str, program: str, own: Sequence[str]) -> SpecError:
    known = sorted(
        {*own, *TrainSettings.__struct_encode_fields__, "data_seed", "program"}
    )
    return SpecError(
        f"recipe {recipe} has no param '{name}'",
        path=f"$.params.{name}",
        because=f"with program {program} they are {', '.join(known)}",
        hint=did_you_mean(name, known) or "leave it out",
    )
