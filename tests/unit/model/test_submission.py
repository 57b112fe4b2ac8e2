from pathlib import Path
from typing import Any

import pytest

from shoal.errors import SpecError
from shoal.model.spec.spec import JobSpec, PlacementSpec, ResourcesSpec, RetrySpec
from shoal.model.spec.submission import load_spec, spec_from_flags, spec_from_task

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_task_of_the_first_scheduler_is_the_recipe_train() -> None:
    spec = load_spec((EXAMPLES / "sample_task.json").read_bytes(), "json")

    assert spec == JobSpec(
        name="ResNet50 Training",
        recipe="train",
        resources=ResourcesSpec(gpu="8GB:2"),
        params={
            "model": "resnet50",
            "dataset": "imagenet",
            "batch_size": 64,
            "learning_rate": 0.001,
            "epochs": 90,
            "optimizer": "sgd",
            "momentum": 0.9,
            "weight_decay": 0.0001,
        },
    )


def test_the_flags_of_the_first_scheduler_give_the_same_job_as_its_json() -> None:
    by_flags = spec_from_flags({"name": "r", "gpus": "2", "memory": "8192"})

    assert by_flags == spec_from_task(
        {"name": "r", "required_gpus": 2, "min_gpu_memory": 8192}
    )


def test_a_task_without_numbers_asks_for_one_gpu_with_4096_mb() -> None:
    need = ResourcesSpec(gpu="4GB:1")

    assert spec_from_task({"name": "x"}).resources == need
    assert spec_from_flags({"name": "x"}).resources == need
    assert spec_from_flags({"gpus": "1"}).resources == need
    assert spec_from_flags({"gpus": "A100"}).resources == ResourcesSpec(
        gpu="A100:4GB:1"
    )
    assert spec_from_flags({"gpus": "..8GB"}).resources == ResourcesSpec(gpu="..8GB:1")
    assert spec_from_flags({"gpus": "0"}).resources == ResourcesSpec()
    assert spec_from_task({"required_gpus": 0}).resources == ResourcesSpec()


def test_the_defaults_of_tasks_do_not_hold_for_a_command() -> None:
    spec = spec_from_flags({"command": ["python", "train.py"]})

    assert spec == JobSpec(command=("python", "train.py"))


def test_a_task_may_have_a_command_and_other_fields() -> None:
    spec = spec_from_task(
        {"required_gpus": 1, "min_gpu_memory": 0, "command": "x", "priority": 3}
    )

    assert spec == JobSpec(command=("x",), priority=3, resources=ResourcesSpec(gpu="1"))


def test_the_command_keeps_the_text_of_a_param_that_prints_otherwise() -> None:
    texts = {"a": "1e-3", "b": "0.001", "c": "-0", "d": "x"}
    by_json = spec_from_task({"params": dict(texts), "required_gpus": 1})
    by_flags = spec_from_flags(
        {"params": [f"{k}={v}" for k, v in texts.items()], "gpus": 1}
    )

    assert by_json == by_flags
    assert by_json.params == {"a": 0.001, "b": 0.001, "c": 0, "d": "x"}
    assert by_json.params_text == {"a": "1e-3", "c": "-0"}


def test_memory_with_a_unit_is_refused_with_the_two_things_it_could_mean() -> None:
    with pytest.raises(SpecError) as error:
        spec_from_flags({"gpus": 1, "memory": "16GB"})

    assert error.value.path == "--memory"
    assert error.value.hint == (
        "--gpu-mem 16GB for GPU memory, --ram 16GB for main memory"
    )


def test_memory_flags_add_to_the_gpu_need() -> None:
    spec = spec_from_flags(
        {"command": ["x"], "gpus": "A100:2", "gpu_mem": "40GB", "ram": "16GB"}
    )

    assert spec.resources == ResourcesSpec(gpu="A100:40GB:2", ram="16GB")


def test_every_flag_reaches_its_field() -> None:
    spec = spec_from_flags(
        {
            "name": "n",
            "command": ["run", "{lr}"],
            "params": ["lr=0.1"],
            "gpu_mem": "8GB",
            "cpu": "4",
            "disk": "1GB",
            "nodes": "2..4",
            "array": "0-9:3",
            "workdir": ".",
            "setup": "uv sync",
            "env": ["A=b=c", "D="],
            "secrets": ["T"],
            "image": "i",
            "outputs": ["out"],
            "priority": -5,
            "preempt": True,
            "preemptible": False,
            "retries": 7,
            "time_limit": "60m",
            "grace": "5s",
            "policy": "packed",
            "labels": ["region=eu"],
            "max_rtt": "20ms",
            "network": True,
            "driver": "torchrun",
            "at_most_once": True,
            "speculate": None,
        }
    )

    assert spec == JobSpec(
        name="n",
        command=("run", "{lr}"),
        params={"lr": 0.1},
        resources=ResourcesSpec(gpu="8GB:1", cpu="4", disk="1GB"),
        nodes="2..4",
        array="0-9:3",
        workdir=".",
        setup=("uv", "sync"),
        env={"A": "b=c", "D": ""},
        secrets=("T",),
        image="i",
        outputs=("out",),
        priority=-5,
        preempt=True,
        preemptible=False,
        retry=RetrySpec(max=7, on=("failed", "worker-lost")),
        time_limit="1h",
        grace="5s",
        placement=PlacementSpec(
            policy="packed", labels={"region": "eu"}, max_rtt="20ms"
        ),
        network=True,
        driver="torchrun",
        at_most_once=True,
    )


def test_flags_change_a_spec_and_leave_the_rest_as_it_is() -> None:
    base = spec_from_flags(
        {
            "command": ["x"],
            "params": ["lr=1e-1", "n=3"],
            "labels": ["region=eu"],
            "cpu": 2,
            "env": ["A=1"],
        }
    )

    spec = spec_from_flags(
        {"params": ["lr=0.2"], "labels": ["zone=b"], "ram": "1GB", "env": ["B=2"]}, base
    )

    assert spec == JobSpec(
        command=("x",),
        params={"lr": 0.2, "n": 3},
        resources=ResourcesSpec(cpu="2", ram="1GB"),
        placement=PlacementSpec(labels={"region": "eu", "zone": "b"}),
        env={"A": "1", "B": "2"},
    )


def test_a_command_by_flags_replaces_a_recipe_and_the_other_way_round() -> None:
    recipe = spec_from_flags({"recipe": "ddp"})
    command = spec_from_flags({"command": ["x"]})

    assert spec_from_flags({"command": ["x"]}, recipe) == command
    assert spec_from_flags({"recipe": "ddp"}, command) == recipe


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        ({"gpus": "A100:H100"}, "--gpus"),
        ({"command": ["x"], "gpus": "24GB", "gpu_mem": "8GB"}, "--gpus"),
        ({"memory": 1, "gpu_mem": "8GB"}, "--memory"),
        ({"cpu": "four"}, "--cpu"),
        ({"ram": "lots"}, "--ram"),
        ({"priority": "high"}, "--priority"),
        ({"priority": 500}, "--priority"),
        ({"env": ["A"]}, "--env"),
        ({"env": ["A=1", "A=2"]}, "--env"),
        ({"params": ["=1"]}, "--param"),
        ({"labels": ["x"]}, "--label"),
        ({"retries": -1}, "--retries"),
        ({"max_rtt": "5"}, "--max-rtt"),
        ({"time_limit": "5"}, "--time-limit"),
        ({"outputs": ["/x"]}, "--output"),
    ],
)
def test_a_wrong_flag_is_named(flags: dict[str, Any], flag: str) -> None:
    with pytest.raises(SpecError) as error:
        spec_from_flags(flags)

    assert error.value.path == flag
    assert error.value.what.count(" - at ") == 1


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"required_gpus": "2"}, "$.required_gpus"),
        ({"required_gpus": True}, "$.required_gpus"),
        ({"min_gpu_memory": -1}, "$.min_gpu_memory"),
        ({"required_gpus": 1, "resources": {"gpu": 2}}, "$.resources.gpu"),
        ({"required_gpus": 1, "resources": 3}, "$.resources"),
        ({"required_gpus": 1, "params": [1]}, "$.params"),
        ({"required_gpus": 1, "parms": {}}, "$.parms"),
    ],
)
def test_a_wrong_task_is_refused_with_its_path(
    document: dict[str, Any], path: str
) -> None:
    with pytest.raises(SpecError) as error:
        spec_from_task(document)

    assert error.value.path == path


def test_a_json_text_with_a_command_is_an_ordinary_spec() -> None:
    spec = load_spec('{"command": "x", "params": {"a": "64"}}', "json")

    assert spec.params == {"a": "64"}
    with pytest.raises(SpecError, match="neither of command and recipe"):
        load_spec("{}", "json")


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        ({"command": ["true"], "outputs": ["/etc/passwd"]}, "--output"),
        ({"command": ["true"], "params": ["index=1"]}, "--param"),
        ({"command": [""]}, "--"),
    ],
)
def test_a_complaint_names_the_flag_as_it_is_typed(
    flags: dict[str, list[str]], flag: str
) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_flags(flags)

    assert caught.value.path == flag
