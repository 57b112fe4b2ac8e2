"""What a spec may say about checking results."""

import pytest

from shoal.errors import SpecError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Verify
from shoal.model.spec.canonical import spec_of
from shoal.model.spec.documents import Plain

PLAIN: dict[str, Plain] = {"command": "a", "outputs": ["out/"]}


def verify_of(verify: dict[str, Plain], **more: Plain) -> Verify | None:
    spec = spec_of({**PLAIN, "verify": verify, **more})
    return derive(spec, JobId("j"), OwnerId("ann")).groups[0].verify


def test_two_owners_are_the_default_and_six_more_results_the_most() -> None:
    assert verify_of({}) == Verify(copies=2, compare="outputs", most=8)
    assert verify_of({"copies": 3}) == Verify(copies=3, most=9)
    assert verify_of({"most": 2, "always": True}) == Verify(most=2, always=True)


def test_a_list_of_words_is_a_command_that_compares() -> None:
    found = verify_of({"compare": ["python3", "close.py", 0.1]})

    assert found == Verify(command=("python3", "close.py", "0.1"))


def test_stdout_needs_no_outputs_and_is_kept() -> None:
    spec = spec_of({"command": "a", "verify": {"compare": "stdout"}})
    task = derive(spec, JobId("j"), OwnerId("ann")).groups[0].tasks[0]

    assert task.work.keep_stdout


def test_what_a_step_says_replaces_what_the_job_says() -> None:
    steps: Plain = {
        "a": {"command": "a"},
        "b": {"command": "b", "verify": {"copies": 3}},
    }
    spec = spec_of({"outputs": ["x"], "verify": {}, "steps": steps})

    groups = derive(spec, JobId("j"), OwnerId("ann")).groups
    assert [group.verify and group.verify.copies for group in groups] == [2, 3]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"at_most_once": True, "verify": {}}, "both at_most_once and verify"),
        ({"nodes": 2, "verify": {}}, "the tasks of a gang cannot be verified"),
        ({"outputs": [], "verify": {}}, "there are no outputs to compare"),
        ({"verify": {"copies": 1}}, "expected at least 2"),
        ({"verify": {"copies": 6}}, "expected at most 5"),
        ({"verify": {"copies": 3, "most": 2}}, "2 results are never enough"),
        ({"verify": {"compare": "/etc/passwd"}}, "nothing that results can be"),
        ({"verify": {"compare": "a/../../b"}}, "nothing that results can be"),
        ({"verify": {"compare": []}}, "the command that compares is empty"),
        ({"verify": {"owners": "all"}}, "'all' is no value"),
        ({"verify": {"copy": 2}}, "unknown field 'copy'"),
    ],
)
def test_what_cannot_be_verified_is_refused(more: dict[str, Plain], what: str) -> None:
    with pytest.raises(SpecError, match=what):
        spec_of({**PLAIN, **more})


def test_the_canonical_form_leaves_out_what_is_the_default() -> None:
    plain = spec_of({**PLAIN, "verify": {"copies": 2, "most": 8}})

    assert plain.verify is not None
    assert plain.verify.most is None
    assert plain == spec_of({**PLAIN, "verify": {}})
