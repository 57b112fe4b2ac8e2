import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Scalar
from shoal.model.spec.submission import load_spec
from shoal.model.spec.sweeps import LABEL_LENGTH_MAX, labels_of
from shoal.model.text.bounds import NAME_LENGTH_MAX
from shoal.model.text.grammar import is_below, is_name


@pytest.mark.parametrize(
    ("points", "labels"),
    [
        ([{"lr": 0.1}, {"lr": 0.003}], ["lr=0.1", "lr=0.003"]),
        ([{"lr": 0.1, "wd": 0}, {"lr": 0.2, "wd": 0}], ["lr=0.1", "lr=0.2"]),
        ([{"a": 1, "b": 2}], ["a=1,b=2"]),
        ([{"index": 0}, {"index": 7}], ["0", "7"]),
        ([{"data": "/mnt/a b"}, {"data": "../x"}], ["data=_mnt_a_b", "data=.._x"]),
        ([{"lr": 1}, {"lr": 1}, {"lr": 2}], ["lr=1", "lr=1#2", "lr=2"]),
        ([{"m": "A"}, {"m": "a"}], ["m=A", "m=a#2"]),
    ],
)
def test_a_point_is_called_by_what_tells_it_from_others(
    points: list[dict[str, Scalar]], labels: list[str]
) -> None:
    assert labels_of(points) == labels


VALUES = st.one_of(st.text(max_size=80), st.integers(), st.floats(), st.booleans())


@given(st.lists(st.dictionaries(st.just("p"), VALUES), min_size=1, max_size=8))
def test_labels_are_different_names_of_folders(points: list[dict[str, Scalar]]) -> None:
    labels = labels_of(points)

    assert len({label.casefold() for label in labels}) == len(points)
    for label in labels:
        assert is_name(label)
        assert is_below(f"step/{label}")
        assert "/" not in label
        assert len(label.encode()) <= LABEL_LENGTH_MAX + 8 <= NAME_LENGTH_MAX


def test_tasks_of_a_sweep_have_labels_and_others_have_none() -> None:
    spec = """
    steps:
      one: {command: a}
      two: {command: b, sweep: {lr: [1, 2]}}
      three: {command: c, nodes: 2, sweep: {lr: [1, 2]}}
      four: {command: d, array: 2}
    """
    job = derive(load_spec(spec, "yaml"), JobId("j"), OwnerId("ann"))

    assert {task.id: task.label for task in job.tasks()} == {
        "j.one.0": "",
        "j.two.0": "lr=1",
        "j.two.1": "lr=2",
        "j.three-0.0": "lr=1",
        "j.three-0.1": "lr=1",
        "j.three-1.0": "lr=2",
        "j.three-1.1": "lr=2",
        "j.four.0": "0",
        "j.four.1": "1",
    }
