"""`shoal policy list` and `shoal policy test`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.policy.pools import install

from shoal.cli.config.policy import policy
from shoal.errors import PolicyError
from shoal.policy.conformance import MEANINGS
from shoal.policy.registry import BUILT_IN


def test_all_policies_are_listed_and_the_default_is_marked() -> None:
    result = CliRunner().invoke(policy, ["list"])

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line[2:].split()[0] for line in lines] == sorted(BUILT_IN)
    assert [line.split()[1] for line in lines if line[0] == "*"] == ["compact"]


def test_the_columns_of_the_list_are_straight() -> None:
    lines = CliRunner().invoke(policy, ["list"]).output.splitlines()

    assert len({line.index("  shoal  ") for line in lines}) == 1


def test_the_list_can_be_read_by_programs() -> None:
    result = CliRunner().invoke(policy, ["list", "--json"])

    answer = json.loads(result.output)
    assert answer["version"] == 1
    assert [row["name"] for row in answer["policies"]] == sorted(BUILT_IN)


def test_a_good_policy_passes_with_a_verdict_for_each_promise() -> None:
    result = CliRunner().invoke(policy, ["test", "balanced"])

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len([line for line in lines if line.startswith("ok")]) == len(MEANINGS)
    assert lines[-1] == "balanced keeps all promises"


def test_the_verdict_can_be_read_by_programs() -> None:
    result = CliRunner().invoke(policy, ["test", "simple", "--json"])

    answer = json.loads(result.output)
    assert answer["kept"] is True
    assert [row["check"] for row in answer["checks"]] == list(MEANINGS)


def test_an_unknown_policy_is_an_error() -> None:
    result = CliRunner().invoke(policy, ["test", "ballanced"])

    assert isinstance(result.exception, PolicyError)


def test_a_bad_policy_fails_with_the_case_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "class Bad:\n    def assign(self, w, t): raise ValueError('no idea')\n"
    install(tmp_path, "bad", source)
    monkeypatch.syspath_prepend(tmp_path)

    result = CliRunner().invoke(policy, ["test", "bad"])

    assert result.exit_code == 1
    assert "FAIL  total" in result.output
    assert "no workers: it raised ValueError: no idea" in result.output
    assert result.output.endswith("bad breaks promises\n")
