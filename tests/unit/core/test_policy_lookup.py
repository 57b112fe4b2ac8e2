"""A scheduler places by the policy that a job names, if there is one."""

import pytest

from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.errors import PolicyError
from shoal.policy.registry import Registry


def test_a_job_that_names_no_policy_gets_the_default() -> None:
    policies = PolicyLookup(Registry({}), "simple")

    assert policies.get("").name == "simple"
    assert policies.get("best-fit").name == "best-fit"


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    refusal = PolicyLookup().refusal("balancd")

    assert "no policy 'balancd'" in refusal


def test_a_policy_that_is_gone_after_a_restart_gives_way_to_the_default() -> None:
    assert PolicyLookup().get("vanished").name == "compact"


def test_a_default_that_does_not_exist_is_an_error_at_once() -> None:
    with pytest.raises(PolicyError, match="no policy 'nope'"):
        PolicyLookup(Registry({}), "nope")
