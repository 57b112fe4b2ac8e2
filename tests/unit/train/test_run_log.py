"""What a training prints is JSON, whatever its losses are."""

import io
import json
import math

import msgspec
import pytest

from shoal.train.diloco.curves import RunCurves
from shoal.train.diloco.member import Member
from shoal.train.run_log import RunLog
from shoal.train.settings import settings_of


def strict(line: str) -> dict[str, object]:
    """Read JSON as it is defined: Python's own reader takes NaN as well."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    found: dict[str, object] = json.loads(line, parse_constant=refuse)
    return found


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_losses_that_are_no_numbers_are_null(
    loss: float, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    status = Member("train.0", 1, "initial", 1).status()
    status = msgspec.structs.replace(status, validated=1, validation={"loss": loss})

    RunLog().tell({"event": "step", "loss": loss, "parts": [{"loss": loss}]})
    RunCurves(settings_of({}), out).validated(status)

    assert strict(capsys.readouterr().out) == {
        "event": "step",
        "loss": None,
        "parts": [{"loss": None}],
    }
    assert strict(out.getvalue())["validation_loss"] is None
