"""What a command prints as JSON is JSON, whatever a task has measured."""

import json
import math
from typing import NoReturn

import pytest

from shoal.cli.display.printing import echo_json


def test_numbers_that_json_does_not_have_are_null(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    metrics = {"loss": math.nan, "rate": math.inf, "best": [1.5, -math.inf]}
    echo_json({"task": {"metrics": metrics, "step": 3}})

    printed = json.loads(capsys.readouterr().out, parse_constant=refuse)
    metrics = printed["task"]["metrics"]
    assert metrics == {"loss": None, "rate": None, "best": [1.5, None]}
    assert printed["task"]["step"] == 3
