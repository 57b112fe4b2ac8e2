"""All exceptions that shoal raises on purpose.

    ShoalError          something failed: what, why, and what to do next
    ├── UsageError      the request makes no sense here
    │   ├── SpecError   a job spec is wrong; `path` says where in it
    │   └── TraceError  a workload file is wrong; `line` says where in it
    ├── ProtocolError   bytes from a peer are not a message; `kind` says how
    ├── PolicyError     a policy is broken, or broke a promise
    │   └── UnknownPolicyError  no policy has this name; also a UsageError
    ├── StoreError      the journal cannot be read or written; `kind` says how
    ├── ApiError        a node did not fulfil a client's request
    │   ├── NotFoundError     there is no such job, task or node
    │   │   ├── MovedError    the job is on another node
    │   │   └── NoJobError    no job of this node has this name
    │   ├── NotAllowedError   the client may not do this
    │   └── UnreachableError  no node is running, or it does not answer
    ├── EngineError     an engine such as Slurm did not do what it was asked
    └── CallError       a function call has no result
        ├── CallLostError     it may have run, and nobody knows how it ended
        ├── CallRefusedError  it did not run, and will not
        ├── CallStoppedError  it was stopped on request
        ├── RemoteError       it raised an exception that cannot be sent here
        └── ResultRefusedError  its result was not read: it could run code

A message gives names and numbers. A peer's mistake never raises inside a machine: the
codec raises `ProtocolError`, and the host refuses and counts it. Our own mistakes are
bugs: an `assert` fails, and none of these exceptions is raised.
"""

from collections.abc import Iterable
from typing import Literal, final

ProtocolFault = Literal["oversized", "malformed", "unknown-tag", "version"]
StoreFault = Literal["in-use", "damaged", "missing", "newer", "foreign", "disk", "bug"]


def nearest(word: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """Return the known word nearest to another; empty if none is `alike`, of 1."""
    from difflib import get_close_matches  # noqa: PLC0415 - Only after a mistake.

    return next(iter(get_close_matches(word, sorted(known), n=1, cutoff=alike)), "")


def did_you_mean(word: str, known: Iterable[str], *, before: str = "") -> str:
    """Return a hint that names the known word nearest to another; empty if none is."""
    near = nearest(word, known)
    return f"did you mean '{before}{near}'?" if near else ""


class ShoalError(Exception):
    """Something failed, for a reason that concerns the user.

    `what` failed, `because` of this, and the `hint` is what to do next. All three
    are plain text without a full stop; `because` and `hint` may be empty. The hint is a
    note, too, so a traceback of a user's program ends with it.
    """

    def __init__(self, what: str, *, because: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.because = because
        self.hint = hint
        if hint:
            self.add_note(f"next: {hint}")

    def __str__(self) -> str:
        """Return what failed and why, on one line."""
        return f"{self.what}: {self.because}" if self.because else self.what


class UsageError(ShoalError):
    """The request makes no sense here; exit code 2."""


@final
class SpecError(UsageError):
    """A job spec is wrong. `path` leads to the place, such as `$.resources.gpu`.

    It is empty for the whole spec, or if `what` names the place itself.
    """

    def __init__(
        self, what: str, *, path: str = "", because: str = "", hint: str = ""
    ) -> None:
        place = f" - at `{path}`" if path else ""
        super().__init__(what + place, because=because, hint=hint)
        self.path = path


@final
class TraceError(UsageError):
    """A workload file is unreadable or wrong; names file and line."""

    def __init__(
        self, what: str, *, file: str, line: int = 0, because: str = "", hint: str = ""
    ) -> None:
        place = f"{file}, line {line}" if line else file
        super().__init__(f"{place}: {what}", because=because, hint=hint)
        self.file = file
        self.line = line


@final
class ProtocolError(ShoalError):
    """Bytes from a peer are not a message; `kind` names the counter."""

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
    """No policy or queue order has this name; exit code 2."""


@final
class StoreError(ShoalError):
    """The journal cannot be read or written. It is never skipped, and never retried.

    `kind` is "in-use" by another process, "damaged", of a "newer" shoal, "foreign"
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
    """A node did not fulfil a client's request."""


class NotFoundError(ApiError):
    """The node knows nothing by this name; exit code 102."""


@final
class MovedError(NotFoundError):
    """Another node of the owner has the job; exit code 102 if it is not followed."""

    def __init__(
        self,
        what: str,
        node: str,
        *,
        because: str = "",
        hint: str = "",
        forwarded: bool = False,
    ) -> None:
        super().__init__(what, because=because, hint=hint)
        self.node = node
        self.forwarded = forwarded  # by the node that was asked, which knows it well


@final
class NoJobError(NotFoundError):
    """No job of the node that was asked is called `job`; exit code 102."""

    def __init__(self, job: str, what: str, *, because: str, hint: str) -> None:
        super().__init__(what, because=because, hint=hint)
        self.job = job


@final
class NotAllowedError(ApiError):
    """The caller may not do this; exit code 106."""


@final
class UnreachableError(ApiError):
    """No node is running, or it does not answer; exit code 105."""


@final
class EngineError(ShoalError):
    """An engine did not do it. If it is `final`, it never will, as things are."""

    def __init__(self, what: str, *, final: bool) -> None:
        super().__init__(what)
        self.final = final


class CallError(ShoalError):
    """A function call has no result."""


@final
class CallLostError(CallError):
    """Its interpreter was lost too often: it may have run, at least in part."""


@final
class CallRefusedError(CallError):
    """It did not run and will not: no interpreter was available."""


@final
class CallStoppedError(CallError):
    """It was stopped before it began or while it ran."""


@final
class RemoteError(CallError):
    """It raised an exception that could not be sent here; the text describes it."""


@final
class ResultRefusedError(CallError):
    """Another owner's machine sent a result that could run code here if read."""


@final
class KeyLockedError(ShoalError):
    """The key needs a passphrase, and none was given."""
