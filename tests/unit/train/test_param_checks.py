"""What a recipe would refuse is refused before its job is accepted."""

import pytest

from shoal.errors import SpecError
from shoal.model.spec.recipes import DEFAULT_PROGRAMS
from shoal.train.param_checks import AT_LEAST, ONE_OF, check_params
from shoal.train.programs import PROGRAMS


@pytest.mark.parametrize(
    ("recipe", "params"),
    [
        ("diloco", {"workers": 4, "quorum": 2, "rounds": 9, "lr": 0.1, "seed": 3}),
        ("diloco", {"program": "train.py", "anything": "goes", "rounds": 2}),
        ("diloco", {"compress": "int8", "balance": False, "gather": 2}),
        ("ddp", {"layers": "3", "optimizer": "sgd", "weight_decay": 0}),
        ("pipeline", {"micro_batches": 2}),
        ("sweep", {"trials": 3, "width": 8, "program": "digits"}),
        ("eval", {"model": "model.safetensors", "width": 32}),
        ("train", {"model": "resnet18", "batch_size": 64, "learning_rate": 0.1}),
        ("diloco", {"data_seed": 5}),
        ("diloco", {"inner.ddp": 2}),
        ("diloco", {"inner.fsdp": 2, "program": "digits"}),
        ("diloco", {"inner.pipeline": 2, "program": "pipeline_gpt"}),
        ("diloco", {"inner.pipeline": 2, "program": "train.py"}),
    ],
)
def test_params_that_there_are_pass(recipe: str, params: dict[str, object]) -> None:
    check_params(recipe, params, DEFAULT_PROGRAMS[recipe])


@pytest.mark.parametrize(
    ("recipe", "params", "path", "because", "hint"),
    [
        ("diloco", {"round": 9}, "round", "rounds", "did you mean 'rounds'?"),
        ("ddp", {"zebra": 2}, "zebra", "program gpt", "leave it out"),
        ("ddp", {"micro_batches": 2}, "micro_batches", "program gpt", ""),
        ("diloco", {"rounds": "many"}, "rounds", "a whole number", "training.md"),
        ("diloco", {"rounds": 0}, "rounds", "at least 1", "training.md"),
        ("diloco", {"rounds": 2.5}, "rounds", "a whole number", "training.md"),
        ("diloco", {"outer_momentum": 1}, "outer_momentum", "< 1.0", "training.md"),
        ("diloco", {"compress": "int4"}, "compress", "allowed here: ", "training.md"),
        ("diloco", {"outer_lr": float("inf")}, "outer_lr", "finite", "training.md"),
        ("diloco", {"lr": "fast"}, "lr", "a number like 0.003", "training.md"),
        ("diloco", {"lr": float("nan")}, "lr", "finite", "training.md"),
        ("diloco", {"batch": 0}, "batch", "at least 1", "training.md"),
        ("diloco", {"batch": 1.5}, "batch", "a whole number", "training.md"),
        ("diloco", {"batch": float("inf")}, "batch", "a whole number", "training.md"),
        ("diloco", {"lr": -0.1}, "lr", "at least 0", "training.md"),
        ("ddp", {"optimizer": "adam"}, "optimizer", "adamw", "training.md"),
        ("diloco", {"program": "gtp"}, "program", "gpt", "train.py"),
        (
            "diloco",
            {"program": "t.py", "rounds": -1},
            "rounds",
            "at least 1",
            "training.md",
        ),
        ("diloco", {"inner.ddp": 0}, "inner.ddp", "at least 1", "training.md"),
        ("diloco", {"inner.fsdp": "all"}, "inner.fsdp", "a whole", "training.md"),
        ("diloco", {"inner.tp": 2}, "inner.tp", "inner.ddp", "did you mean 'inner."),
        ("ddp", {"inner.ddp": 2}, "inner.ddp", "diloco", "leave it out"),
        (
            "diloco",
            {"inner.ddp": 2, "inner.fsdp": 2},
            "inner.fsdp",
            "inner.ddp and inner.fsdp",
            "all but one",
        ),
        ("diloco", {"inner.pipeline": 2}, "inner.pipeline", "layers", "pipeline_gpt"),
        (
            "diloco",
            {"inner.fsdp": 2, "program": "pipeline_gpt"},
            "inner.fsdp",
            "pipeline_gpt",
            "{pipeline: 2}",
        ),
        ("eval", {"width": 3}, "model", "no param `model`", "model.safetensors"),
        ("train", {"epochs": 0}, "rounds", "at least 1", "training.md"),
    ],
)
def test_what_is_wrong_why_and_what_to_do_is_said(
    recipe: str, params: dict[str, object], path: str, because: str, hint: str
) -> None:
    with pytest.raises(SpecError) as refused:
        check_params(recipe, params, DEFAULT_PROGRAMS[recipe])

    assert refused.value.path == f"$.params.{path}"
    assert because in refused.value.because
    assert hint in refused.value.hint


def test_limits_are_of_params_that_programs_have() -> None:
    for program in PROGRAMS:
        recipe = next(r for r, p in DEFAULT_PROGRAMS.items() if p == program)
        with pytest.raises(SpecError) as refused:
            check_params(recipe, {"zzz": 1}, program)
        known = refused.value.because
        assert "seed" in known
        assert "rounds" in known

    assert set(ONE_OF) & set(AT_LEAST) == set()
