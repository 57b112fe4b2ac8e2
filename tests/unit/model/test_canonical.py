from typing import Any

import pytest

from shoal.errors import SpecError
from shoal.model.spec.canonical import ELSEWHERE, canonical, spec_of
from shoal.model.spec.documents import read_yaml
from shoal.model.spec.spec import JobSpec, PlacementSpec, ResourcesSpec, RetrySpec

EVERYTHING = """
name: resnet50
command: torchrun train.py --lr {lr}
params: {lr: 0.1, epochs: 90}
resources: {gpu: "24GB..:2", cpu: 4.., ram: 16GB.., disk: 20GB}
any_of: [{gpu: "A100:80GB:1"}, {gpu: "2:24GB"}]
nodes: 1
workdir: .
setup: uv sync
env: {WANDB_MODE: offline, DEBUG: 1}
secrets: [HF_TOKEN]
image: pytorch/pytorch
outputs: [out/]
priority: 5
preempt: true
retry: {max: 2, on: [worker-lost, exit:33]}
time_limit: 90m
placement: {policy: balanced, labels: {region: eu}, max_rtt: 50ms, same_leaf: prefer}
"""


def test_every_field_of_a_spec_has_a_canonical_form() -> None:
    assert spec_of(read_yaml(EVERYTHING)) == JobSpec(
        name="resnet50",
        command=("torchrun", "train.py", "--lr", "{lr}"),
        params={"lr": 0.1, "epochs": 90},
        resources=ResourcesSpec(gpu="24GB:2", cpu="4", ram="16GB", disk="20GB"),
        any_of=(ResourcesSpec(gpu="A100:80GB:1"), ResourcesSpec(gpu="24GB:2")),
        workdir=".",
        setup=("uv", "sync"),
        env={"WANDB_MODE": "offline", "DEBUG": "1"},
        secrets=("HF_TOKEN",),
        image="pytorch/pytorch",
        outputs=("out/",),
        priority=5,
        preempt=True,
        retry=RetrySpec(max=2, on=("exit:33", "worker-lost")),
        time_limit="1h30m",
        placement=PlacementSpec(
            policy="balanced",
            labels={"region": "eu"},
            max_rtt="50ms",
            same_leaf="prefer",
        ),
    )


def test_bringing_a_spec_to_canonical_form_twice_changes_nothing() -> None:
    spec = spec_of(read_yaml(EVERYTHING))

    assert canonical(spec) == spec


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"nodes": "..3"}, {"nodes": "1..3"}),
        ({"nodes": "2..2"}, {"nodes": 2}),
        ({"array": "0-9"}, {"array": 10}),
        ({"array": "0-9:4"}, {"array": "8,0,4"}),
        ({"array": "3,1"}, {"array": "1,3"}),
        ({"array": "1-2,9"}, {"array": "9,2,1"}),
        ({"sweep": {"x": {"from": 1, "to": 3}}}, {"sweep": {"x": [1, 2, 3]}}),
        (
            {"sweep": {"x": {"from": 0.1, "to": 0.3, "step": 0.1}}},
            {"sweep": {"x": [0.1, 0.2, 0.3]}},
        ),
        (
            {"sweep": {"x": {"from": 4, "to": 0, "step": -2}}},
            {"sweep": {"x": [4, 2, 0]}},
        ),
        ({"resources": {"cpu": 1, "gpu": 0, "ram": "0"}}, {}),
        ({"resources": {"ram": "1024MB"}}, {"resources": {"ram": "1GB.."}}),
        ({"grace": "10000ms"}, {}),
        ({"placement": {"same_leaf": True}}, {"placement": {"same_leaf": "require"}}),
        ({"secrets": ["B", "A"]}, {"secrets": ["A", "B", "A"]}),
        ({"command": "python 'a b.py' 3"}, {"command": ["python", "a b.py", 3]}),
    ],
)
def test_two_ways_to_write_one_job_are_equal(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert spec_of({"command": "x", **one}) == spec_of({"command": "x", **other})


def test_a_mapping_in_params_is_another_way_to_write_dotted_names() -> None:
    nested = "recipe: diloco\nparams: {rounds: 2, inner: {ddp: 2}}\n"
    steps = "steps: {a: {recipe: diloco, params: {inner: {fsdp: 4}}}}\n"

    assert spec_of(read_yaml(nested)).params == {"rounds": 2, "inner.ddp": 2}
    assert spec_of(read_yaml(steps)).steps["a"].params == {"inner.fsdp": 4}
    for wrong in ("{inner.ddp: 1, inner: {ddp: 2}}", "{inner: {ddp: {a: 1}}}"):
        with pytest.raises(SpecError) as refused:
            spec_of(read_yaml(f"recipe: diloco\nparams: {wrong}\n"))
        assert refused.value.path == "$.params.inner.ddp"


def test_indexes_that_are_not_evenly_spaced_are_listed() -> None:
    assert spec_of({"command": "x", "array": "1-2,9"}).array == "1,2,9"


@pytest.mark.parametrize(
    ("document", "path", "hint"),
    [
        ({"resources": {"gpus": 1}}, "$.resources.gpus", "did you mean 'gpu'?"),
        ({"comand": "x"}, "$.comand", "did you mean 'command'?"),
        ({"any_of": [{}, {"rma": 1}]}, "$.any_of[1].rma", "did you mean 'ram'?"),
        ({"steps": {"a": {"need": []}}}, "$.steps.a.need", "did you mean 'needs'?"),
        ({"sweep": {"x": {"form": 1}}}, "$.sweep.x.form", "did you mean 'from'?"),
        ({"retry": {"zzz": 1}}, "$.retry.zzz", "known: max, on"),
    ],
)
def test_an_unknown_field_is_named_with_its_path_and_the_nearest_known(
    document: dict[str, Any], path: str, hint: str
) -> None:
    with pytest.raises(SpecError, match="unknown field") as error:
        spec_of(document)

    assert error.value.path == path
    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"priority": "high"}, "$.priority"),
        ({"priority": 101}, "$.priority"),
        ({"resources": {"gpu": True}}, "$.resources.gpu"),
        ({"resources": {"gpu": "A100:H100"}}, "$.resources.gpu"),
        ({"resources": {"ram": "..8GB"}}, "$.resources.ram"),
        ({"any_of": [{"gpu": "2:3"}]}, "$.any_of[0].gpu"),
        ({"params": {"ok": 1, "wrong": None}}, "$.params.wrong"),
        ({"params": {"index": 1}}, "$.params.index"),
        ({"params": {"no good": 1}}, "$.params"),
        ({"params": {str(n): 1 for n in range(300)}}, "$.params"),
        ({"nodes": 0}, "$.nodes"),
        ({"nodes": "0..2"}, "$.nodes"),
        ({"nodes": "2.."}, "$.nodes"),
        ({"nodes": "2..9999"}, "$.nodes"),
        ({"array": "5-1"}, "$.array"),
        ({"array": "1,1"}, "$.array"),
        ({"array": "1-4:0"}, "$.array"),
        ({"array": "a"}, "$.array"),
        ({"array": "0-999999999"}, "$.array"),
        ({"sweep": {}}, "$.sweep"),
        ({"sweep": {"x": []}}, "$.sweep.x"),
        ({"sweep": {"x": {"from": 1, "to": 3, "step": 0}}}, "$.sweep.x"),
        ({"sweep": {"x": {"from": 3, "to": 1}}}, "$.sweep.x"),
        ({"sweep": {"x": {"from": 0, "to": 1e15}}}, "$.sweep.x"),
        ({"sweep": {c: list(range(100)) for c in "xyz"}}, "$.sweep"),
        ({"sweep": {"x": [1]}, "params": {"x": 2}}, "$.params.x"),
        ({"sweep": {"x": [1]}, "array": 3}, "$"),
        ({"time_limit": "90"}, "$.time_limit"),
        ({"time_limit": "0s"}, "$.time_limit"),
        ({"time_limit": 90}, "$.time_limit"),
        ({"env": {"A-B": "x"}}, "$.env"),
        ({"env": {"A": "x"}, "secrets": ["A"]}, "$.env.A"),
        ({"outputs": ["../x"]}, "$.outputs[0]"),
        ({"outputs": ["ok", "/etc"]}, "$.outputs[1]"),
        ({"retry": {"on": ["worker-lost", "exit:0"]}}, "$.retry.on[1]"),
        ({"retry": {"on": ["exit:256"]}}, "$.retry.on[0]"),
        ({"retry": {"max": -1}}, "$.retry.max"),
        ({"at_most_once": True, "speculate": True}, "$"),
        ({"driver": "container"}, "$.driver"),
        ({"name": "a\nb"}, "$.name"),
        ({"setup": "echo 'x"}, "$.setup"),
        ({"params_text": {"lr": "1e-3"}}, "$.params_text.lr"),
        ({"recipe": "train"}, "$"),
        ({"placement": {"max_rtt": "fast"}}, "$.placement.max_rtt"),
        ({"placement": {"same_leaf": "maybe"}}, "$.placement.same_leaf"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(
    document: dict[str, Any], path: str
) -> None:
    with pytest.raises(SpecError) as error:
        spec_of({"command": "x", **document})

    assert error.value.path == path


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("", "empty"),
        ([], "empty"),
        ("echo 'x", "cannot be split"),
        ("a && b", "needs a shell"),
        ("a | b", "needs a shell"),
        (["x"] * 2000, "too long"),
        (["a\0b"], "zero byte"),
    ],
)
def test_a_command_that_cannot_run_is_refused(
    command: str | list[Any], what: str
) -> None:
    with pytest.raises(SpecError, match=what) as error:
        spec_of({"command": command})

    assert error.value.path.startswith("$.command")


def test_a_job_needs_a_command_or_a_recipe_or_steps() -> None:
    with pytest.raises(SpecError, match="neither of command and recipe"):
        spec_of({"name": "idle"})
    with pytest.raises(SpecError, match="not a mapping"):
        spec_of(["python"])


def test_steps_leave_no_room_for_a_command_beside_them() -> None:
    with pytest.raises(SpecError) as error:
        spec_of({"command": "x", "steps": {"a": {"command": "y"}}})

    assert error.value.path == "$.command"


def test_a_wrong_value_in_a_step_is_named_with_the_step() -> None:
    with pytest.raises(SpecError) as error:
        spec_of({"steps": {"ok": {"command": "x"}, "bad": {"params": {"q": [1]}}}})

    assert error.value.path == "$.steps.bad.params.q"


def test_a_step_without_a_program_is_refused() -> None:
    with pytest.raises(SpecError) as error:
        spec_of({"steps": {"a": {"nodes": 2}}})

    assert error.value.path == "$.steps.a"


def test_a_need_for_an_unknown_step_names_the_nearest() -> None:
    with pytest.raises(SpecError) as error:
        spec_of({"steps": {"prep": {"command": "x", "needs": ["prepp"]}}})

    assert error.value.path == "$.steps.prep.needs[0]"
    assert error.value.hint == "did you mean 'prep'?"


def test_steps_that_need_each_other_are_refused_with_the_circle() -> None:
    steps: dict[str, Any] = {
        "a": {"command": "x", "needs": ["b"]},
        "b": {"command": "x", "needs": ["c"]},
        "c": {"command": "x", "needs": ["a"]},
    }

    with pytest.raises(SpecError, match="circle") as error:
        spec_of({"steps": steps})

    assert error.value.because == "a needs b needs c needs a"


ZEROES: list[tuple[str, dict[str, Any]]] = [
    ("$.name", {"name": "a\0b"}),
    ("$.command", {"command": "python \0"}),
    ("$.env.A", {"env": {"A": "\0"}}),
    ("$.params.a", {"params": {"a": "x\0y"}}),
    ("$.sweep.a[0]", {"sweep": {"a": ["x\0y"]}}),
    ("$.workdir", {"workdir": "tree:\0"}),
    ("$.outputs[0]", {"outputs": ["out\0"]}),
    ("$.image", {"image": "im\0age"}),
    ("$.placement.labels.zone", {"placement": {"labels": {"zone": "\0"}}}),
    ("$.placement.labels.zone", {"placement": {"labels": {"zone": "w\x1b[2J"}}}),
    ("$.setup", {"setup": "x \0"}),
    ("$.driver", {"driver": "process\0"}),
]


@pytest.mark.parametrize(("path", "fields"), ZEROES)
def test_a_spec_with_a_zero_byte_is_refused_where_it_is(
    path: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(SpecError) as error:
        spec_of({"command": "true", **fields})

    assert error.value.path == path
    assert "regex" not in str(error.value)


def test_an_argument_may_hold_any_other_character() -> None:
    spec = spec_of({"command": ["printf", "\x1b[1m\n"], "env": {"SEP": "\x1f"}})

    assert spec.command == ("printf", "\x1b[1m\n")


@pytest.mark.parametrize(
    ("name", "ours"),
    [("timeout", "time_limit"), ("volumes", "mounts"), ("retries", "retry")],
)
def test_words_of_other_tools_lead_to_ours(name: str, ours: str) -> None:
    with pytest.raises(SpecError, match="unknown field") as error:
        spec_of({"command": ["true"], name: 2})

    assert error.value.hint == f"it is called '{ours}' here"
    assert set(ELSEWHERE.values()) <= set(JobSpec.__struct_fields__)


@pytest.mark.parametrize("name", ["cpus", "gpu", "memory"])
def test_amounts_outside_of_resources_are_told_where_they_go(name: str) -> None:
    with pytest.raises(SpecError, match="unknown field") as error:
        spec_of({"command": ["true"], name: 2})

    assert error.value.hint is not None
    assert "resources: {cpu: 2" in error.value.hint
