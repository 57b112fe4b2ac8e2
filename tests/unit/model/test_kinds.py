import pytest

from shoal.errors import UsageError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Task
from shoal.model.kinds import allowed, foreign
from shoal.model.spec.submission import load_spec


def tasks(text: str) -> list[Task]:
    return list(derive(load_spec(text, "yaml"), JobId("j"), OwnerId("ann")).tasks())


def test_without_a_word_everything_is_allowed() -> None:
    assert allowed("") == allowed("command,image,recipe")
    assert allowed(" recipe , command,recipe ") == ("recipe", "command")


@pytest.mark.parametrize("text", ["recipes", "recipe,all", "process", "none"])
def test_a_word_that_is_no_kind_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(UsageError) as told:
        allowed(text)

    assert f"'{text.rpartition(',')[2]}'" in told.value.what
    assert "command, image, recipe" in told.value.because
    assert "--allow recipe,command" in told.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "recipe: echo",
        "recipe: diloco\nnodes: 2\nparams: {program: gpt}",
        "recipe: train\nparams: {lr: 0.1}\nnetwork: true\noutputs: [out/]",
        "recipe: eval\nsweep: {lr: [0.1, 0.2]}",
    ],
)
def test_a_program_that_comes_with_shoal_is_a_recipe(text: str) -> None:
    assert {task.work.driver for task in tasks(text)} == {"recipe"}
    assert not any(map(foreign, tasks(text)))


@pytest.mark.parametrize(
    "text",
    [
        "command: 'true'",
        "recipe: echo\nworkdir: blob:" + 64 * "0",
        "recipe: echo\nsetup: make",
        "recipe: echo\nenv: {PYTHONPATH: /tmp}",
        "recipe: train\nparams: {program: mine.py}",
        "recipe: train\nsweep: {program: [gpt, mine.py]}",
        "recipe: train\nsweep: [{program: mine.py}]",
    ],
)
def test_what_brings_its_own_code_is_a_command(text: str) -> None:
    assert {task.work.driver for task in tasks(text)} == {"process"}
