"""A program finds its own params and those of all recipes, each of its type."""

import json
import sys

import pytest

from shoal.errors import UsageError
from shoal.train.arguments import program_params


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--rounds", "7", "--lr", "0.5"])
    monkeypatch.setenv("SHOAL_PARAMS", json.dumps({"inner_steps": 20, "lr": 0.1}))


def test_params_of_recipes_have_types_and_defaults_and_need_not_be_listed(
    given: None,
) -> None:
    params = program_params(lr=0.01, width=8)

    assert (params.rounds, params.inner_steps, params.workers) == (7, 20, 1)
    assert params.all == {"rounds": 7, "inner_steps": 20, "lr": 0.5, "width": 8}


def test_a_seed_that_differs_between_workers_is_not_for_a_program_to_list(
    given: None,
) -> None:
    with pytest.raises(UsageError, match="no param of a program's own") as refused:
        program_params(data_seed=5)

    assert "another for each worker" in str(refused.value)
