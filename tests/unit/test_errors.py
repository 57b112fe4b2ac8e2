import pickle

import pytest

from shoal.errors import (
    PolicyError,
    ProtocolError,
    ShoalError,
    SpecError,
    StoreError,
    UsageError,
)


def test_an_error_reads_as_what_failed_and_why() -> None:
    error = UsageError("no task 't7'", because="it ended 25 h ago", hint="look again")

    assert str(error) == "no task 't7': it ended 25 h ago"


def test_an_error_without_a_reason_reads_as_what_failed() -> None:
    assert str(PolicyError("no policy 'tight'")) == "no policy 'tight'"


def test_an_error_in_a_spec_reads_with_its_place() -> None:
    error = SpecError("expected a count, got 'two'", path="$.resources.gpu")

    assert str(error) == "expected a count, got 'two' - at `$.resources.gpu`"


@pytest.mark.parametrize(
    "error",
    [
        ShoalError("it failed", because="of this", hint="do that"),
        SpecError("it is wrong", path="$.nodes", because="of this"),
        ProtocolError("frame of 9 MiB", kind="oversized", because="8 MiB at most"),
        StoreError("row 7 is altered", kind="damaged", hint="take the backup"),
    ],
)
def test_an_error_survives_the_way_between_processes(error: ShoalError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
