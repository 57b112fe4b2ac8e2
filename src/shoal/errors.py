"""All exceptions that shoal raises on purpose.

    ShoalError          something failed: what, because of what, and what to do next
    ├── UsageError      the user asked for something that makes no sense here
    │   ├── SpecError   a job spec is wrong; `path` says where in it
    │   └── TraceError  a file of a workload is wrong; `line` says where in it
    ├── ProtocolError   bytes from a peer are no message of ours; `kind` says how
    ├── PolicyError     a policy is broken, or broke a promise
    │   └── UnknownPolicyError  there is none of this name; also a UsageError
    ├── StoreError      the journal cannot be read or written; `kind` says how
    ├── ApiError        a node did not do what a client asked
    │   ├── NotFoundError     it knows no such job, task or node
    │   ├── NotAllowedError   the client may not ask this
    │   └── UnreachableError  there is no node, or it does not answer
    └── CallError       a call of a function has no result
        ├── CallLostError     it may have run, and nobody knows how it ended
        ├── CallRefusedError  it did not run, and will not
        ├── CallStoppedError  it was stopped, because somebody wanted that
        ├── RemoteError       it raised something that cannot be brought here
        └── ResultRefusedError  what came back is not read here: it could run code

A message names things and gives numbers. What a peer does wrong never raises inside
a machine: the codec raises `ProtocolError`, and the host refuses and counts it. What
we do wrong is a bug, and no exception of this module: it is an `assert` that fails.
"""

from typing import Literal, final

ProtocolFault = Literal["oversized", "malformed", "unknown-tag", "version"]
StoreFault = Literal["in-use", "damaged", "missing", "newer", "foreign", "disk", "bug"]


class ShoalError(Exception):
    """Something failed, for a reason that a user can be told.

    `what` failed, `because` of this, and the `hint` is what to do next. All three
    are plain text without a full stop; `because` and `hint` may be empty.
    """

    def __init__(self, what: str, *, because: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.because = because
        self.hint = hint

    def __str__(self) -> str:
        """Return what failed and why, on one line."""
        return f"{self.what}: {self.because}" if self.because else self.what


class UsageError(ShoalError):
    """The user asked for something that makes no sense here; exit code 2."""


@final
class SpecError(UsageError):
    """A job spec is wrong. `path` leads to the place, such as `$.resources.gpu`.

    It is empty when the whole spec is meant, or when `what` names the place itself.
    """

    def __init__(
        self, what: str, *, path: str = "", because: str = "", hint: str = ""
    ) -> None:
        place = f" - at `{path}`" if path else ""
        super().__init__(what + place, because=because, hint=hint)
        self.path = path


@final
class TraceError(UsageError):
    """A file of a workload cannot be read, or makes no sense; names file and line."""

    def __init__(
        self, what: str, *, file: str, line: int = 0, because: str = "", hint: str = ""
    ) -> None:
        place = f"{file}, line {line}" if line else file
        super().__init__(f"{place}: {what}", because=because, hint=hint)
        self.file = file
        self.line = line


@final
class ProtocolError(ShoalError):
    """Bytes from a peer are no message of ours; `kind` is what to count it under."""

    def __init__(
        self,
        what: str,
        *,
        kind: ProtocolFault = "malformed",
        because: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(what, because=because, hint=hint)
        self.kind: ProtocolFault = kind


class PolicyError(ShoalError):
    """A policy cannot be loaded, or broke a promise of its interface."""


@final
class UnknownPolicyError(PolicyError, UsageError):
    """There is no policy, or no order of the queue, of this name; exit code 2."""


@final
class StoreError(ShoalError):
    """The journal cannot be read or written. It is never skipped, and never retried.

    `kind` is "in-use" by another process, "damaged", of a "newer" shoal or "foreign"
    to all of them, refused by the "disk", or a "bug" of ours.
    """

    def __init__(
        self,
        what: str,
        *,
        kind: StoreFault = "disk",
        because: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(what, because=because, hint=hint)
        self.kind: StoreFault = kind


class ApiError(ShoalError):
    """A node did not do what a client asked."""


@final
class NotFoundError(ApiError):
    """The node knows no such thing; exit code 102."""


@final
class NotAllowedError(ApiError):
    """Whoever asked may not; exit code 106."""


@final
class UnreachableError(ApiError):
    """No node runs, or it does not answer, so nobody knows; exit code 105."""


class CallError(ShoalError):
    """A call of a function has no result."""


@final
class CallLostError(CallError):
    """Its interpreter was lost, too often: it may have run, whole or in part."""


@final
class CallRefusedError(CallError):
    """It did not run and will not: no interpreter could be had for it."""


@final
class CallStoppedError(CallError):
    """It was stopped, before it began or while it ran."""


@final
class RemoteError(CallError):
    """It raised an exception that could not be brought here; the text tells of it."""


@final
class ResultRefusedError(CallError):
    """A machine of another owner sent what could run code here if it were read."""


@final
class KeyLockedError(ShoalError):
    """A key is there, and nobody has said its passphrase."""
