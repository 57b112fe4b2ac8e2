"""A recipe of several parts becomes groups, each with its own needs."""

import pytest

from shoal.errors import SpecError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job, Retry
from shoal.model.spec.submission import load_spec


def derived(text: str) -> Job:
    return derive(load_spec(text, "yaml"), JobId("j"), OwnerId("ann"))


def test_diloco_is_a_gang_of_workers_and_an_aggregator_without_a_gpu() -> None:
    job = derived(
        "recipe: diloco\nnodes: 2..4\nparams: {rounds: 9}\n"
        "resources: {gpu: 8GB, cpu: 4}\noutputs: [out/]\n"
    )

    aggregate, train = job.groups
    assert [task.id for task in aggregate.tasks] == ["j.aggregate.0"]
    assert aggregate.gang_min == 0
    assert aggregate.tasks[0].profiles[0].cpu_milli == 500
    assert aggregate.tasks[0].profiles[0].gpu is None
    assert aggregate.tasks[0].work.outputs == ("out/",)
    assert [task.id for task in train.tasks] == [f"j.train.{n}" for n in range(4)]
    assert train.gang_min == 2
    assert train.tasks[0].profiles[0].cpu_milli == 4_000
    assert train.tasks[0].work.outputs == ()
    for task in job.tasks():
        assert task.work.recipe == "diloco"
        assert task.params == {"rounds": 9, "workers": 4, "quorum": 2}


def test_a_job_says_itself_what_a_quorum_is() -> None:
    job = derived("recipe: diloco\nnodes: 4\nparams: {quorum: 3}\n")

    assert {task.params["quorum"] for task in job.tasks()} == {3}


def test_every_point_of_a_sweep_has_its_own_aggregator() -> None:
    job = derived("recipe: diloco\nnodes: 2\nsweep: {lr: [0.1, 0.2]}\n")

    assert [group.id for group in job.groups] == [
        "j.aggregate",
        "j.train-0",
        "j.train-1",
    ]
    aggregators = job.groups[0].tasks
    assert [task.params["lr"] for task in aggregators] == [0.1, 0.2]


SPANNED = "recipe: diloco\nparams: {inner: {pipeline: 2, over: machines}}\n"


def test_workers_that_span_machines_are_gangs_with_one_aggregator() -> None:
    job = derived(SPANNED + "nodes: 3\n")

    aggregate, *workers = job.groups
    assert [task.id for task in aggregate.tasks] == ["j.aggregate.0"]
    assert [group.id for group in workers] == [f"j.train-{n}" for n in range(3)]
    for group in workers:
        assert len(group.tasks) == group.gang_min == 2
        assert all(task.work.network for task in group.tasks)
        assert {task.params["workers"] for task in group.tasks} == {3}
    assert not aggregate.tasks[0].work.network


@pytest.mark.parametrize(
    ("rest", "hint"),
    [("nodes: 2..3\n", "nodes: 3"), ("nodes: 2\nsweep: {lr: [0.1, 0.2]}\n", "a job")],
)
def test_workers_that_span_machines_are_neither_elastic_nor_swept(
    rest: str, hint: str
) -> None:
    with pytest.raises(SpecError) as caught:
        derived(SPANNED + rest)

    assert hint in (caught.value.hint or "")


def test_parts_of_a_step_carry_its_name_and_all_are_needed() -> None:
    job = derived(
        "steps:\n  learn: {recipe: diloco, nodes: 2}\n"
        "  look: {command: python look.py, needs: [learn]}\n"
    )

    assert [group.id for group in job.groups] == [
        "j.learn-aggregate",
        "j.learn-train",
        "j.look",
    ]
    assert job.groups[2].needs == ("j.learn-aggregate", "j.learn-train")


def test_a_sweep_of_single_workers_is_refused() -> None:
    with pytest.raises(SpecError, match="at least two nodes"):
        derived("recipe: diloco\nsweep: {lr: [0.1, 0.2]}\n")


def test_a_pipeline_of_no_fixed_length_is_refused() -> None:
    with pytest.raises(SpecError, match="fixed number of nodes"):
        derived("recipe: pipeline\nnodes: 2..3\n")


def test_being_killed_is_no_failure_of_a_recipe_that_goes_on() -> None:
    job = derived("recipe: diloco\nnodes: 2\n")

    assert job.retry.max == 20
    assert {"worker-lost", "exit:137", "exit:33"} <= set(job.retry.on)
    assert not {"failed", "exit:1", "exit:2"} & set(job.retry.on)


def test_what_a_job_says_of_retries_counts() -> None:
    job = derived("recipe: diloco\nnodes: 2\nretry: {max: 1, on: [worker-lost]}\n")

    assert job.retry == Retry(1, ("worker-lost",))


def test_a_sweep_has_a_judge_and_a_trial_for_each_point() -> None:
    job = derived(
        "recipe: sweep\nsweep: {lr: [0.1, 0.2, 0.3]}\nparams: {rounds: 9}\n"
        "resources: {gpu: 1}\n"
    )

    judge, trials = job.groups
    assert [task.id for task in judge.tasks] == ["j.judge.0"]
    assert judge.tasks[0].params == {"rounds": 9, "trials": 3}
    assert judge.tasks[0].profiles[0].gpu is None
    assert [task.params["lr"] for task in trials.tasks] == [0.1, 0.2, 0.3]
    assert trials.tasks[0].profiles[0].gpu is not None


@pytest.mark.parametrize(
    ("recipe", "nodes", "least"), [("ddp", "2..3", 2), ("pipeline", "3", 3)]
)
def test_recipes_that_talk_at_every_step_are_gangs_with_a_network(
    recipe: str, nodes: str, least: int
) -> None:
    job = derived(f"recipe: {recipe}\nnodes: {nodes}\n")

    [gang] = job.groups
    assert gang.gang_min == least
    assert len(gang.tasks) == 3
    assert all(task.work.network for task in gang.tasks)
    assert gang.tasks[0].params == {"workers": 3, "quorum": least}
    assert gang.tasks[0].work.outputs == ("out/",)


LEARNING = ("torch", "safetensors")


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("recipe: diloco\nnodes: 2", [("safetensors",), LEARNING]),
        ("recipe: ddp\nnodes: 2", [LEARNING]),
        ("recipe: pipeline\nnodes: 2", [LEARNING]),
        ("recipe: eval\nparams: {program: train.py}", [LEARNING]),
        ("recipe: sweep\nsweep: {lr: [1, 2]}", [("shoal",), (*LEARNING, "sklearn")]),
        ("recipe: train", [(*LEARNING, "sklearn")]),
        ("recipe: train\nparams: {model: resnet50}", [(*LEARNING, "torchvision")]),
        (
            "recipe: train\nsweep: {model: [vgg11, resnet50]}",
            [(*LEARNING, "torchvision")],
        ),
        ("recipe: echo", [()]),
        ("recipe: diloco\nnodes: 2\nsetup: pip install torch", [(), ()]),
        ("recipe: diloco\nnodes: 2\nimage: pytorch/pytorch", [(), ()]),
        ("recipe: diloco\nnodes: 2\nenv: {PYTHONPATH: lib}", [(), ()]),
        ("command: python train.py", [()]),
    ],
)
def test_a_part_needs_the_modules_that_its_program_imports_and_does_not_bring(
    text: str, modules: list[tuple[str, ...]]
) -> None:
    job = derived(text)

    assert [g.tasks[0].profiles[0].modules for g in job.groups] == modules


@pytest.mark.parametrize(
    ("words", "mounts"),
    [
        ("params: {model: resnet50, dataset: imagenet}", ("imagenet",)),
        ("params: {model: vgg11, dataset: CIFAR-10}", ("cifar10",)),
        ("params: {model: vgg11, dataset: Our-Photos}", ("Our-Photos",)),
        ("params: {model: vgg11, dataset: synthetic}", ()),
        ("params: {epochs: 3}", ()),
        ("params: {dataset: cifar10}\nmounts: [weights]", ("cifar10", "weights")),
        ("sweep: {dataset: [cifar10, mnist]}", ("cifar10", "mnist")),
    ],
)
def test_a_training_task_goes_where_its_dataset_lies(
    words: str, mounts: tuple[str, ...]
) -> None:
    [group] = derived(f"recipe: train\n{words}").groups

    assert group.tasks[0].work.mounts == mounts
