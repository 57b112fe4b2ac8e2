# pyright: reportMissingImports=false
"""A task in the words of the first training scheduler trains what they say."""

import json
import os
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.runtime.torch_forks import Program, run_all

STAND_IN = Path(__file__).parent / "stand_in"
IS_REAL = find_spec("torchvision") is not None
real = pytest.mark.skipif(not IS_REAL, reason="torchvision is not installed")

TIMEOUT_S = 300.0
TASK = {
    "model": "resnet18",
    "batch_size": 32,
    "learning_rate": 0.05,
    "optimizer": "sgd",
    "momentum": 0.9,
    "weight_decay": 0.0001,
}


class Done(NamedTuple):
    """What a program left behind."""

    code: int | None
    out: str
    err: str


def train(folder: Path, params: dict[str, Any], **environment: str) -> Done:
    paths = [] if IS_REAL else [str(STAND_IN)]
    env = {
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        "SHOAL_RECIPE": "train",
        "SHOAL_PARAMS": json.dumps({**TASK, **params}),
        **environment,
    }
    out, err = (folder / f"{len(list(folder.iterdir()))}.{n}" for n in ("out", "err"))
    alone = Program("shoal.train.single.alone", folder, env, out, err)
    [code] = run_all([alone], TIMEOUT_S)
    return Done(code, out.read_text(), err.read_text())


def told(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_task_with_two_gpus_trains_in_two_processes_that_share_each_batch(
    tmp_path: Path,
) -> None:
    params = {"dataset": "synthetic", "samples": 320, "epochs": 4}

    done = train(tmp_path, params, GPUS_PER_NODE="2")

    accuracy = [line["validation_accuracy"] for line in told(done) if "round" in line]
    state = torch.load(tmp_path / "checkpoint" / "state.pt")
    assert state["step"] == 4 * 10  # 320 images in batches of 32, whoever computes
    assert len(accuracy) == 4
    assert accuracy[-1] > 0.3  # ten classes: by chance it were 0.1
    assert load_file(tmp_path / "out" / "model.safetensors")


def test_what_is_not_there_is_named_and_never_replaced(tmp_path: Path) -> None:
    unknown = train(tmp_path, {"model": "resnet19", "dataset": "synthetic"})
    absent = train(tmp_path, {"dataset": "cifar10"})

    assert unknown.code == absent.code == 2
    assert "no model 'resnet19'" in unknown.err
    assert "did you mean 'resnet18'?" in unknown.err
    assert "the dataset 'cifar10' is not here" in absent.err
    assert "shoal up --share cifar10=FOLDER" in absent.err


@real
def test_cifar_10_is_read_as_it_is_published(tmp_path: Path) -> None:
    batches = tmp_path / "data" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    chance = np.random.default_rng(1)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        images = chance.integers(0, 256, (8, 3072), dtype=np.uint8)
        rows = {"data": images, "labels": [n % 10 for n in range(8)]}
        (batches / name).write_bytes(pickle.dumps(rows))
    params = {"dataset": "CIFAR-10", "epochs": 1, "batch_size": 8, "loaders": 0}

    done = train(tmp_path, params, SHOAL_MOUNT_CIFAR10=str(tmp_path / "data"))

    assert done.code == 2  # These are not the published bytes.
    assert "cannot be read" in done.err


@real
def test_a_folder_of_images_per_class_is_a_dataset(tmp_path: Path) -> None:
    from PIL import Image  # noqa: PLC0415 - It comes with torchvision.

    for part in ("train", "val"):
        for name, colour in (("cat", (200, 10, 10)), ("dog", (10, 10, 200))):
            (tmp_path / "data" / part / name).mkdir(parents=True)
            for number in range(8):
                path = tmp_path / "data" / part / name / f"{number}.jpg"
                Image.new("RGB", (40, 40), colour).save(path)
    mounted = {"SHOAL_MOUNT_OUR_PHOTOS": str(tmp_path / "data")}
    params = {"dataset": "our-photos", "batch_size": 4, "epochs": 2, "size": 32}

    lines = told(train(tmp_path, params, **mounted))
    (tmp_path / "data" / "val" / "bird").mkdir()
    odd = train(tmp_path, params, **mounted)

    assert [line["round"] for line in lines if "round" in line] == [1, 2]
    assert odd.code == 2
    assert "bird" in odd.err
