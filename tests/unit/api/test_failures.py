import errno

import grpc
import pytest

from shoal.api.failures import kind_of, shown_of
from shoal.api.grpc_failures import packed
from shoal.api.shoal_pb2 import Error
from shoal.errors import (
    NotAllowedError,
    NotFoundError,
    ShoalError,
    SpecError,
    UsageError,
)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (UsageError("x"), "usage", grpc.StatusCode.INVALID_ARGUMENT),
        (SpecError("x"), "usage", grpc.StatusCode.INVALID_ARGUMENT),
        (NotFoundError("x"), "not-found", grpc.StatusCode.NOT_FOUND),
        (NotAllowedError("x"), "not-allowed", grpc.StatusCode.PERMISSION_DENIED),
        (ShoalError("x"), "refused", grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
def test_each_kind_of_error_has_a_code(
    error: ShoalError, kind: str, code: grpc.StatusCode
) -> None:
    assert kind_of(error) == kind
    assert packed(error)[0] is code


def test_a_full_disk_is_no_bug_of_the_node(capfd: pytest.CaptureFixture[str]) -> None:
    full, kind = shown_of(OSError(errno.ENOSPC, "No space left on device", "/x"))
    bug, _ = shown_of(OSError(errno.EBADF, "Bad file descriptor"))

    assert (full.what, kind) == ("the node has no room on its disk", "refused")
    assert "bug" not in full.hint
    assert "bug" in bug.hint
    assert "No space" not in capfd.readouterr().err


def test_an_error_is_packed_with_its_reason_and_what_to_do() -> None:
    error = NotFoundError("no job", because="none came", hint="submit one")

    _, text, ((name, data),) = packed(error)

    told = Error.FromString(data)
    assert text == "no job: none came"
    assert name == "shoal-error-bin"
    assert (told.what, told.because, told.hint) == ("no job", "none came", "submit one")
