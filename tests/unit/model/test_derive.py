from typing import Any

import pytest

from shoal.errors import SpecError
from shoal.model.derive import derive, renamed
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job, Retry, Work
from shoal.model.resources import GIB, GpuNeed, Profile
from shoal.model.spec.canonical import spec_of


def derived(document: dict[str, Any], priority: int | None = None) -> Job:
    return derive(spec_of(document), JobId("j"), OwnerId("ann"), priority)


def argvs(job: Job) -> list[tuple[str, ...]]:
    return [task.work.argv for task in job.tasks()]


def test_a_command_is_one_group_of_one_task() -> None:
    job = derived({"command": "python train.py"})

    (group,) = job.groups
    (task,) = group.tasks
    assert (group.id, group.gang_min, group.needs) == ("j.main", 0, ())
    assert (task.id, task.group, task.job) == ("j.main.0", "j.main", "j")
    assert (task.index, task.size) == (0, 1)
    assert task.profiles == (Profile(cpu_milli=1000),)
    assert job.name == "python"


def test_everything_that_a_spec_says_reaches_the_job() -> None:
    job = derived(
        {
            "name": "r",
            "command": "x",
            "setup": "uv sync",
            "env": {"A": 1},
            "secrets": ["S"],
            "image": "i",
            "workdir": ".",
            "outputs": ["out"],
            "network": True,
            "driver": "container",
            "time_limit": "2h",
            "grace": "1m",
            "priority": 7,
            "preempt": True,
            "preemptible": False,
            "at_most_once": True,
            "retry": {"max": 1, "on": ["failed"]},
            "resources": {"gpu": "24GB:2", "cpu": 0.5, "ram": "1GB", "disk": "2GB"},
            "placement": {
                "policy": "packed",
                "labels": {"b": 2, "a": "1"},
                "max_rtt": "50ms",
                "same_leaf": "require",
            },
        }
    )

    (task,) = job.tasks()
    assert task.work == Work(
        driver="container",
        argv=("x",),
        setup=("uv", "sync"),
        env={"A": "1"},
        secrets=("S",),
        image="i",
        workdir=".",
        outputs=("out",),
        network=True,
    )
    assert task.profiles == (
        Profile(
            cpu_milli=500,
            memory_bytes=GIB,
            disk_bytes=2 * GIB,
            gpu=GpuNeed(count=2, count_max=2, memory_min_bytes=24 * GIB),
            labels=(("a", "1"), ("b", "2")),
            longest_s=7260,  # its grace included
        ),
    )
    assert (task.time_limit_s, task.grace_s) == (7200.0, 60.0)
    assert (job.name, job.owner, job.priority, job.policy) == ("r", "ann", 7, "packed")
    assert (job.preempt, job.preemptible, job.at_most_once) == (True, False, True)
    assert job.retry == Retry(max=1, on=("failed",))
    assert (job.max_rtt_s, job.same_leaf) == (0.05, "require")


def test_only_tasks_of_a_gang_want_a_node_each() -> None:
    apart = {"distinct_nodes": True}
    job = derived(
        {
            "placement": apart,
            "steps": {
                "prepare": {"command": "x", "array": 2},
                "train": {"command": "x", "nodes": "2..3", "needs": ["prepare"]},
            },
        }
    )
    alone = [[task.alone for task in group.tasks] for group in job.groups]

    assert alone == [[False, False], [True, True, True]]
    assert not any(t.alone for t in derived({"command": "x", "nodes": 2}).tasks())


def test_an_image_runs_in_a_container() -> None:
    (group,) = derived({"command": "x", "image": "busybox"}).groups

    assert group.tasks[0].work.driver == "container"


def test_a_priority_from_outside_replaces_that_of_the_spec() -> None:
    assert derived({"command": "x", "priority": 9}, priority=2).priority == 2
    assert derived({"command": "x", "priority": 9}, priority=0).priority == 0


def test_a_recipe_gets_the_params_and_no_argv() -> None:
    job = derived({"recipe": "echo", "params": {"rounds": 40}})

    (task,) = job.tasks()
    assert task.work == Work(driver="recipe", recipe="echo")
    assert task.params == {"rounds": 40}
    assert job.name == "echo"


def test_an_array_is_one_task_for_each_index() -> None:
    job = derived({"command": "score --shard {index}", "array": "0-10:5"})

    (group,) = job.groups
    assert argvs(job) == [("score", "--shard", n) for n in ("0", "5", "10")]
    assert [task.index for task in group.tasks] == [0, 1, 2]
    assert [task.params for task in group.tasks] == [{"index": n} for n in (0, 5, 10)]
    assert {task.size for task in group.tasks} == {3}
    assert group.gang_min == 0


def test_a_sweep_is_one_task_for_each_combination_the_last_name_fastest() -> None:
    job = derived(
        {
            "command": "train {b} {a} {c} {index}",
            "params": {"c": "x y"},
            "sweep": {"b": [1, 2], "a": [0.1, 0.2]},
        }
    )

    assert argvs(job) == [
        ("train", "1", "0.1", "x y", "0"),
        ("train", "2", "0.1", "x y", "1"),
        ("train", "1", "0.2", "x y", "2"),
        ("train", "2", "0.2", "x y", "3"),
    ]
    assert [task.params for task in job.tasks()][1] == {"a": 0.1, "b": 2, "c": "x y"}


def test_a_sweep_may_list_its_points() -> None:
    job = derived({"command": "t {a}", "sweep": [{"a": 1}, {"a": 5, "b": 2}]})

    assert argvs(job) == [("t", "1"), ("t", "5")]
    assert [task.params for task in job.tasks()] == [{"a": 1}, {"a": 5, "b": 2}]


@pytest.mark.parametrize(
    ("nodes", "gang_min", "tasks"), [(3, 3, 3), ("2..4", 2, 4), ("..2", 1, 2)]
)
def test_a_gang_has_a_task_for_the_most_nodes_and_runs_with_the_least(
    nodes: int | str, gang_min: int, tasks: int
) -> None:
    job = derived({"command": "x", "nodes": nodes})

    (group,) = job.groups
    assert group.gang_min == gang_min
    assert [(t.id, t.index, t.size) for t in group.tasks] == [
        (f"j.main.{rank}", rank, tasks) for rank in range(tasks)
    ]


def test_a_sweep_of_gangs_is_one_group_for_each_point() -> None:
    job = derived({"command": "x {lr} {rank}", "sweep": {"lr": [1, 2]}, "nodes": 2})

    assert [(g.id, g.gang_min) for g in job.groups] == [
        ("j.main-0", 2),
        ("j.main-1", 2),
    ]
    assert argvs(job) == [
        ("x", "1", "0"),
        ("x", "1", "1"),
        ("x", "2", "0"),
        ("x", "2", "1"),
    ]
    assert [task.id for task in job.tasks()][-1] == "j.main-1.1"


def test_steps_are_groups_in_the_order_of_their_needs() -> None:
    job = derived(
        {
            "params": {"d": 1},
            "env": {"A": "1", "B": "1"},
            "resources": {"cpu": 2},
            "any_of": [{"gpu": 1}],
            "time_limit": "1h",
            "steps": {
                "last": {"needs": ["many", "first"], "command": "c {d}"},
                "many": {
                    "needs": ["first"],
                    "command": "b {d} {s}",
                    "params": {"d": 2},
                    "sweep": {"s": [1, 2]},
                    "nodes": 2,
                    "time_limit": "2h",
                },
                "first": {"command": "a", "env": {"B": 2}, "resources": {"ram": "1GB"}},
            },
        }
    )

    first, many0, _, last = job.groups
    assert [group.id for group in job.groups] == [
        "j.first",
        "j.many-0",
        "j.many-1",
        "j.last",
    ]
    assert many0.needs == ("j.first",)
    assert last.needs == ("j.many-0", "j.many-1", "j.first")
    assert many0.tasks[0].work.argv == ("b", "2", "1")
    assert many0.tasks[0].time_limit_s == 7200.0
    assert last.tasks[0].work.argv == ("c", "1")
    assert last.tasks[0].time_limit_s == 3600.0
    assert last.tasks[0].profiles == (
        Profile(cpu_milli=2000, gpu=GpuNeed(), longest_s=3610),
    )
    assert first.tasks[0].work.env == {"A": "1", "B": "2"}
    need = Profile(cpu_milli=1000, memory_bytes=GIB, longest_s=3610)
    assert first.tasks[0].profiles == (need,)


def test_alternatives_are_profiles_in_order_and_keep_the_rest_of_the_need() -> None:
    job = derived(
        {
            "command": "x",
            "resources": {"gpu": 4, "cpu": 2},
            "any_of": [{"gpu": "A100"}, {"cpu": 8}, {"gpu": 0}],
        }
    )

    (task,) = job.tasks()
    assert task.profiles == (
        Profile(cpu_milli=2000, gpu=GpuNeed(models=("A100",))),
        Profile(cpu_milli=8000, gpu=GpuNeed(count=4, count_max=4)),
        Profile(cpu_milli=2000),
    )


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{lr}", "0.1"),
        ("--lr={lr},{lr}", "--lr=0.1,0.1"),
        ("{{lr}}", "{lr}"),
        ("{{lr}}{lr}", "{lr}0.1"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("{}", "{}"),
        ("{1}", "{1}"),
        ("{rank}/{index}", "0/0"),
        ("{text}", "$(rm) ; {lr}"),
    ],
)
def test_a_placeholder_is_filled_within_its_word(word: str, filled: str) -> None:
    params = {"lr": 0.1, "text": "$(rm) ; {lr}"}

    job = derived({"command": ["run", word], "params": params})

    assert argvs(job) == [("run", filled)]


def test_a_command_gets_a_param_as_it_was_typed() -> None:
    typed = {"params": {"lr": 0.001}, "params_text": {"lr": "1e-3"}}
    steps = {
        "a": {"command": "a {lr}"},
        "b": {"command": "b {lr}", "params": {"lr": 2}},
    }

    assert argvs(derived({"command": "x {lr}", **typed})) == [("x", "1e-3")]
    assert argvs(derived({"steps": steps, **typed})) == [("a", "1e-3"), ("b", "2")]


def test_an_unknown_placeholder_is_named_with_the_nearest_known() -> None:
    with pytest.raises(SpecError) as error:
        derived({"command": "run --lr {rl}", "params": {"lrl": 1}})

    assert "{rl}" in error.value.what
    assert error.value.path == "$.command[2]"
    assert error.value.because == "the placeholders are index, lrl, rank"
    assert error.value.hint == "did you mean 'lrl'?"


def test_a_placeholder_of_a_shell_is_refused_with_how_to_write_it() -> None:
    with pytest.raises(SpecError) as error:
        derived({"command": "run ${HOME}"})

    assert error.value.hint == "write {{HOME}} if it is plain text"


def test_an_elastic_gang_does_not_know_its_ranks_upfront() -> None:
    with pytest.raises(SpecError) as error:
        derived({"command": "run {rank}", "nodes": "2..4"})

    assert error.value.because == "an elastic gang numbers its tasks when they start"


VERIFIED = {
    "command": "x",
    "array": 6000,
    "verify": {"copies": 2},
    "outputs": ["o"],
}


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"command": "x", "array": 5000, "nodes": 3}, "15,000 tasks are too many"),
        ({"command": "x", "array": 300, "nodes": 2}, "257 groups are too many"),
        (
            {"steps": {n: {"command": "x", "array": 600_000} for n in ("a", "b")}},
            "1,200,000 tasks are too many",
        ),
        (
            {"steps": dict.fromkeys(("a", "b"), VERIFIED)},
            "12,000 tasks are too many",
        ),
        (
            {
                "steps": {
                    "a": {"command": "x", "array": 2, "nodes": 2},
                    "a-1": {"command": "y"},
                }
            },
            "two groups are called 'j.a-1'",
        ),
        (
            {"command": ["x", "{a}" * 5], "params": {"a": "y" * 8000}},
            "too long with its params",
        ),
        (
            {"command": ["x", "{a}" * 4], "params": {"a": "y" * 8000}, "array": 600},
            "commands of all tasks are too long",
        ),
    ],
)
def test_a_job_that_grows_too_large_is_refused(
    document: dict[str, Any], what: str
) -> None:
    with pytest.raises(SpecError, match=what):
        derived(document)


@pytest.mark.parametrize(
    ("spec", "retry"),
    [
        ({}, Retry()),
        ({"retry": {"max": 2}}, Retry(2, ("failed", "worker-lost"))),
        ({"retry": {"on": [33]}}, Retry(3, ("exit:33",))),
        ({"retry": {"max": 1, "on": ["exit:7"]}}, Retry(1, ("exit:7",))),
        ({"retry": {"max": 0}}, Retry(0, ("failed", "worker-lost"))),
    ],
)
def test_who_asks_for_retries_gets_failures_retried(
    spec: dict[str, object], retry: Retry
) -> None:
    assert derived({"command": ["x"], **spec}).retry == retry


@pytest.mark.parametrize(
    "spec",
    [
        {"command": ["true"]},
        {"command": ["a", "{x}"], "sweep": {"x": [1, 2]}, "nodes": 2},
        {"command": ["a"], "schedule": "5 4 * * *"},
        {
            "steps": {
                "first": {"command": ["a"], "array": 3},
                "then": {"command": ["b"], "needs": ["first"]},
            }
        },
    ],
)
def test_a_renamed_job_is_the_one_that_its_spec_gives_under_that_id(
    spec: dict[str, Any],
) -> None:
    was, id_, ann = JobId("same"), JobId("j7"), OwnerId("ann")
    known = spec_of(spec)

    assert renamed(derive(known, was, ann), id_) == derive(known, id_, ann)
