from pathlib import Path

import pytest

from shoal.api.service.job_checks import check
from shoal.errors import UsageError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job
from shoal.model.spec.submission import load_spec

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))
EXAMPLES = [path for path in EXAMPLES if path.parent.name != "sim"]


def job(text: str) -> Job:
    return derive(load_spec(text, "yaml"), JobId("j"), OwnerId("ann"))


@pytest.mark.parametrize(
    "text",
    [
        "command: 'true'",
        "command: 'true'\ndriver: container\nimage: busybox",
        "recipe: diloco\nnodes: 2..4",
        "recipe: echo\nparams: {whatever: .nan}",
        "command: 'true'\nplacement: {policy: balanced}",
        "steps: {a: {command: 'true'}, b: {recipe: echo}}",
    ],
)
def test_names_that_there_are_pass(text: str) -> None:
    check(job(text))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_node_takes_every_example(path: Path) -> None:
    check(job(path.read_text()))


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("command: 'true'\ndriver: proces", "no driver 'proces'", "'process'?"),
        ("command: 'true'\ndriver: python", "no driver 'python'", "driver: process"),
        ("recipe: dilocco", "no recipe 'dilocco'", "did you mean 'diloco'?"),
        ("recipe: x", "no recipe 'x'", "recipe: train"),
        ("command: 'true'\nplacement: {policy: balancd}", "'balancd'", "'balanced'?"),
        ("steps: {a: {command: 'true'}, b: {recipe: ecko}}", "'ecko'", "'echo'?"),
        ("recipe: diloco\nnodes: 2\nparams: {round: 3}", "'round'", "'rounds'?"),
        ("recipe: sweep\nsweep: {lr: [0.1, x]}", "'lr' cannot be 'x'", "training.md"),
        (
            "steps: {a: {command: 'true', driver: docker}}",
            "'docker'",
            "driver: process",
        ),
    ],
)
def test_a_name_that_nobody_knows_is_refused_with_the_nearest(
    text: str, words: str, hint: str
) -> None:
    with pytest.raises(UsageError) as told:
        check(job(text))

    assert words in told.value.what
    assert hint in told.value.hint
