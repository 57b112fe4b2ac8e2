"""One job has one canonical spec, whichever way it comes in, and it always derives."""

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import SpecError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.spec.canonical import canonical, spec_of
from shoal.model.spec.documents import text_of
from shoal.model.spec.spec import JobSpec
from shoal.model.spec.submission import load_spec, spec_from_flags

NAMES = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True).filter(
    lambda name: name not in {"index", "rank"}
)
WORDS = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=6)
VALUES = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    WORDS.filter(lambda word: word.lower() not in {"true", "false", "null"}),
)
TASKS = st.fixed_dictionaries(
    {
        "name": WORDS,
        "gpus": st.integers(1, 8),
        "memory_mb": st.integers(1, 200_000),
        "params": st.dictionaries(NAMES, VALUES, max_size=4),
    }
)
COMMANDS = st.lists(WORDS, min_size=1, max_size=4)


def written(task: dict[str, Any], program: dict[str, Any]) -> dict[str, Any]:
    gpu = f"{task['memory_mb']}MB..:{task['gpus']}"
    return {
        "name": task["name"],
        "params": task["params"],
        "resources": {"gpu": gpu},
        **program,
    }


def flags_of(task: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": task["name"],
        "gpus": str(task["gpus"]),
        "memory": str(task["memory_mb"]),
        "params": [f"{k}={text_of(v)}" for k, v in task["params"].items()],
    }


def old_json(task: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": task["name"],
        "required_gpus": task["gpus"],
        "min_gpu_memory": task["memory_mb"],
        "params": {k: text_of(v) for k, v in task["params"].items()},
    }


@given(TASKS)
def test_a_task_is_the_same_job_by_yaml_and_json_and_flags_and_old_json(
    task: dict[str, Any],
) -> None:
    document = written(task, {"recipe": "train"})

    by_yaml = load_spec(yaml.safe_dump(document), "yaml")

    assert load_spec(json.dumps(document), "json") == by_yaml
    assert spec_from_flags(flags_of(task)) == by_yaml
    assert load_spec(json.dumps(old_json(task)), "json") == by_yaml


@given(TASKS, COMMANDS)
def test_a_command_is_the_same_job_by_yaml_and_json_and_flags_and_old_json(
    task: dict[str, Any], command: list[str]
) -> None:
    document = written(task, {"command": " ".join(command)})

    by_yaml = load_spec(yaml.safe_dump(document), "yaml")

    assert load_spec(json.dumps({**document, "command": command}), "json") == by_yaml
    assert spec_from_flags({**flags_of(task), "command": command}) == by_yaml
    old = {**old_json(task), "command": command}
    assert load_spec(json.dumps(old), "json") == by_yaml


AMOUNTS = st.sampled_from(["1", "4..", "2GB", "0.5", "..8", "x", "", 3, 0.25, "A100:2"])
RESOURCES = st.dictionaries(st.sampled_from(["gpu", "cpu", "ram", "disk"]), AMOUNTS)
SWEEPS = st.dictionaries(
    NAMES,
    st.lists(VALUES, min_size=1, max_size=3)
    | st.fixed_dictionaries({"from": st.integers(0, 3), "to": st.integers(0, 9)}),
    max_size=2,
)
COMMAND = st.sampled_from(["x", "x {index}", "x {rank}", "x {q}", "a | b"])
PART = {
    "resources": RESOURCES,
    "any_of": st.lists(RESOURCES, max_size=2),
    "nodes": st.sampled_from([1, 2, "2..3", "..2", "3..2", "2.."]),
    "array": st.sampled_from([3, "0-9:4", "1,5", "5-1"]),
    "sweep": SWEEPS,
    "params": st.dictionaries(NAMES, VALUES, max_size=2),
    "time_limit": st.sampled_from(["2h", "90s", "1", "0s"]),
}
STEPS = st.dictionaries(
    st.sampled_from("abc"),
    st.fixed_dictionaries(
        {"command": COMMAND},
        optional={**PART, "needs": st.lists(st.sampled_from("abc"), max_size=2)},
    ),
    min_size=1,
)
DOCUMENTS = st.one_of(
    st.fixed_dictionaries({"command": COMMAND}, optional=PART),
    st.fixed_dictionaries({"steps": STEPS}, optional={"resources": RESOURCES}),
)


def answer_to(document: dict[str, Any]) -> JobSpec | SpecError:
    try:
        return spec_of(document)
    except SpecError as error:
        return error


@settings(max_examples=300)
@given(DOCUMENTS)
def test_a_document_is_refused_or_has_a_canonical_form_that_is_its_own(
    document: dict[str, Any],
) -> None:
    answer = answer_to(document)

    if isinstance(answer, SpecError):
        assert answer.path.startswith("$")
    else:
        assert canonical(answer) == answer


@settings(max_examples=300)
@given(DOCUMENTS)
def test_the_tasks_of_a_job_have_ids_of_their_own_and_needs_that_come_before(
    document: dict[str, Any],
) -> None:
    try:
        job = derive(spec_of(document), JobId("j"), OwnerId("o"))
    except SpecError:
        return

    ids = [task.id for task in job.tasks()]
    assert len(set(ids)) == len(ids)
    seen: list[str] = []
    for group in job.groups:
        assert all(needed in seen for needed in group.needs)
        assert [task.index for task in group.tasks] == list(range(len(group.tasks)))
        assert all(task.size == len(group.tasks) for task in group.tasks)
        assert 0 <= group.gang_min <= len(group.tasks)
        seen.append(group.id)


@given(st.text("a:{}[]&*-!'\"# \n1,.x", max_size=40))
def test_any_text_is_a_spec_or_is_refused(text: str) -> None:
    for format_ in ("yaml", "json"):
        try:
            spec = load_spec(text, format_)
        except SpecError:
            continue
        assert canonical(spec) == spec
