"""Memory is assessed from what a spec says, before anything is placed."""

import pytest

from shoal.model.derive import derive
from shoal.model.footprint import text_models as footprint
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job
from shoal.model.spec.submission import load_spec


def derived(text: str) -> Job:
    return derive(load_spec(text, "yaml"), JobId("j"), OwnerId("ann"))


def memory(job: Job, group: int = -1) -> int:
    return job.groups[group].tasks[0].profiles[0].memory_bytes


def test_adamw_in_single_precision_takes_sixteen_bytes_a_parameter_and_copies() -> None:
    one = footprint.training_bytes(0, activations=0)
    more = footprint.training_bytes(1_000_000, activations=0, copies=0)

    assert more - one == 16_000_000


@pytest.mark.parametrize(
    ("optimizer", "precision", "each"),
    [("sgd", "float32", 8), ("momentum", "float32", 12), ("adamw", "bfloat16", 12)],
)
def test_other_optimizers_and_precisions_take_less(
    optimizer: str, precision: str, each: int
) -> None:
    none = footprint.training_bytes(0, activations=0)
    some = footprint.training_bytes(
        1_000, activations=0, optimizer=optimizer, precision=precision, copies=0
    )

    assert some - none == each * 1_000


def test_a_job_that_says_nothing_of_memory_is_assessed() -> None:
    small = derived("recipe: diloco\nnodes: 2\n")
    wide = derived("recipe: diloco\nnodes: 2\nparams: {width: 1024, layers: 12}\n")
    large = derived("recipe: diloco\nnodes: 2\nparams: {batch: 512, layers: 12}\n")

    assert 400 << 20 < memory(small) < 600 << 20
    assert memory(wide) > 5 << 30
    assert memory(large) > memory(small)


def test_a_worker_of_two_processes_needs_twice_as_much() -> None:
    one = derived("recipe: diloco\nnodes: 2\n")
    two = derived("recipe: diloco\nnodes: 2\nparams: {inner: {ddp: 2}}\n")

    assert memory(two) == pytest.approx(2 * memory(one), rel=0.01)


def test_an_optimizer_without_moments_needs_less() -> None:
    text = "recipe: ddp\nnodes: 2\nparams: {width: 512, layers: 8, optimizer: %s}\n"

    need = {each: memory(derived(text % each)) for each in ("adamw", "sgd")}

    assert need["adamw"] - need["sgd"] > 25_000_000 * 8


def test_a_job_that_says_it_is_believed() -> None:
    job = derived("recipe: diloco\nnodes: 2\nresources: {ram: 2GB}\n")

    assert memory(job) == 2 << 30


def test_the_aggregator_of_a_job_is_not_a_trainer() -> None:
    job = derived("recipe: diloco\nnodes: 2\nparams: {width: 1024, layers: 12}\n")

    assert memory(job, 0) < memory(job, 1)


def test_each_peer_of_a_pipeline_needs_less_than_all_of_the_model() -> None:
    params = "params: {width: 1024, layers: 12}\n"
    whole = derived(f"recipe: ddp\nnodes: 1\n{params}")
    split = derived(f"recipe: pipeline\nnodes: 4\n{params}")

    assert memory(split) < memory(whole) / 2


def test_nothing_is_assessed_that_nobody_can_know() -> None:
    assert memory(derived("recipe: ddp\nnodes: 2\nparams: {program: mine.py}\n")) == 0
    assert memory(derived("recipe: echo\n")) == 0


IMAGES = (
    "recipe: train\nresources: {{gpu: {gpus}}}\nparams: {{model: {model}, "
    "dataset: synthetic-imagenet, batch_size: 64, optimizer: sgd, momentum: 0.9}}\n"
)


def gpu_memory(model: str, gpus: str) -> int:
    need = derived(IMAGES.format(model=model, gpus=gpus)).groups[0].tasks[0].profiles[0]
    assert need.gpu is not None
    return need.gpu.memory_min_bytes


def test_gpus_of_a_task_that_trains_images_share_its_batch() -> None:
    one, four = gpu_memory("resnet50", "1"), gpu_memory("resnet50", "4")

    assert 5 << 30 < one < 8 << 30
    assert 1 << 30 < four < one / 2
    assert gpu_memory("resnet18", "1") < one / 2


def test_gpu_memory_that_is_named_or_of_an_unknown_network_is_not_assessed() -> None:
    assert gpu_memory("resnet50", "'24GB'") == 24 << 30
    assert gpu_memory("vit_b_16", "1") == 0
