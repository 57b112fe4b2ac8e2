"""What a recipe would refuse is refused before its job is accepted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.errors import SpecError
from shoal.model.spec.recipes import DEFAULT_PROGRAMS
from shoal.train.param_checks import AT_LEAST, ONE_OF, check_params
from shoal.train.programs import PROGRAMS

RESNET = {"model": "resnet50", "dataset": "imagenet"}


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
        ("train", {"batch_size": 64, "learning_rate": 0.1, "epochs": 2}),
        ("train", {**RESNET, "batch_size": 64, "learning_rate": 0.1, "epochs": 9}),
        ("train", {**RESNET, "optimizer": "adam", "weight_decay": 0.1}),
        ("train", {**RESNET, "dataset": "our-photos", "schedule": "cosine"}),
        ("diloco", {"data_seed": 5}),
        ("diloco", {"inner.ddp": 2}),
        ("diloco", {"inner.fsdp": 2, "program": "digits"}),
        ("diloco", {"inner.pipeline": 2, "program": "pipeline_gpt"}),
        ("diloco", {"inner.pipeline": 2, "program": "train.py"}),
        ("diloco", {"inner.ddp": 2, "inner.over": "machines", "index": 1}),
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
        ("diloco", {"inner.over": "machines"}, "inner.over", "how many", "pipeline"),
        ("diloco", {"inner.over": "moons"}, "inner.over", "machines", "training.md"),
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
        ("train", {"epochs": 0}, "epochs", "at least 1", "training.md"),
        ("train", {"model": "resnet50"}, "dataset", "on what", '"synthetic"'),
        ("train", {"dataset": "cifar10"}, "model", "not what", '"resnet50"'),
        ("train", {"momentum": 0.9}, "model", "not what", '"resnet50"'),
        ("train", {**RESNET, "optimizer": "lion"}, "optimizer", "rmsprop", "training"),
        ("train", {**RESNET, "learning_rate": -1}, "learning_rate", "at least 0", ""),
        ("train", {**RESNET, "epoch": 3}, "epoch", "learning_rate", "'epochs'"),
        (
            "train",
            {**RESNET, "optimizer": "adam", "momentum": 0.9},
            "momentum",
            "sgd",
            "leave it out",
        ),
        (
            "train",
            {**RESNET, "dataset": "synthetic-imagnet"},
            "dataset",
            "synthetic-cifar10",
            "synthetic-imagenet",
        ),
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
        with pytest.raises(SpecError) as refused:
            check_params("sweep", {"zzz": 1, "program": program}, program)
        known = refused.value.because
        assert "seed" in known
        assert "rounds" in known

    assert set(ONE_OF) & set(AT_LEAST) == set()


def test_models_are_known_by_torchvisions_source(tmp_path: Path) -> None:
    models = tmp_path / "torchvision" / "models"
    models.mkdir(parents=True)
    (tmp_path / "torchvision" / "__init__.py").touch()
    source = '@register_model()\n@handle("x")\ndef resnet9() -> None: ...\n'
    (models / "resnet.py").write_text(source)
    script = (
        "from shoal.train.param_checks import check_params\n"
        "given = {'model': 'resnet8', 'dataset': 'synthetic'}\n"
        "try: check_params('train', given, 'digits')\n"
        "except Exception as error: print(error.hint)\n"
        "check_params('train', {**given, 'model': 'resnet9'}, 'digits')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "did you mean 'resnet9'?\n"
