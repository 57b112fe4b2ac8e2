"""The `verify` section of a spec: its form, its meaning, and what it rules out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from shoal.errors import SpecError
from shoal.model.job import Verify
from shoal.model.spec.documents import text_of
from shoal.model.spec.limits import ARGV_CHARS_MAX, ARGV_WORDS_MAX

if TYPE_CHECKING:
    from shoal.model.spec.spec import JobSpec, VerifySpec

STDOUT: Final = "stdout"
OUTPUTS: Final = "outputs"
MORE_ANSWERS: Final = 6
"""Results awaited beyond those that must agree, unless the spec says how many."""


def canonical_verify(verify: VerifySpec, path: str) -> VerifySpec:
    """Return the one form of what a spec says, or raise `SpecError`."""
    if verify.most is not None and verify.most < verify.copies:
        raise SpecError(
            f"{verify.most} results are never enough",
            path=f"{path}.most",
            because=f"{verify.copies} must agree",
            hint="raise most, or leave it out",
        )
    most = None if verify.most == verify.copies + MORE_ANSWERS else verify.most
    if isinstance(verify.compare, str):
        _refuse_path(verify.compare, f"{path}.compare")
        return replace(verify, most=most)
    words = tuple(text_of(word) for word in verify.compare)
    _refuse_command(words, f"{path}.compare")
    return replace(verify, most=most, compare=words)


def check_verify(spec: JobSpec, path: str, nodes: int) -> None:
    """Refuse what cannot be verified, or not in this way; `nodes` run each point."""
    verify = spec.verify
    if verify is None:
        return
    where = f"{path}.verify"
    if spec.at_most_once:
        raise SpecError(
            "both at_most_once and verify",
            path=where,
            because="to verify a task is to run it more than once",
            hint="remove one of them",
        )
    if nodes > 1:
        raise SpecError(
            "the tasks of a gang cannot be verified",
            path=where,
            because="each of them depends on what the others say",
            hint="verify a step that checks what the gang has made",
        )
    if verify.compare != STDOUT and not spec.outputs:
        raise SpecError(
            "there are no outputs to compare",
            path=where,
            because="the job names none",
            hint="name them like `outputs: [out/]`, or write `compare: stdout`",
        )


def verify_of(spec: JobSpec) -> Verify | None:
    """Return how results of a canonical spec are checked; None: they are believed."""
    verify = spec.verify
    if verify is None:
        return None
    by_path = isinstance(verify.compare, str)
    return Verify(
        copies=verify.copies,
        compare=str(verify.compare) if by_path else OUTPUTS,
        command=() if by_path else tuple(map(str, verify.compare)),
        most=verify.most or verify.copies + MORE_ANSWERS,
        owners=verify.owners,
        always=verify.always,
    )


def _refuse_path(text: str, path: str) -> None:
    names = text.split("/")
    if not text or "\0" in text or text.startswith("/") or ".." in names:
        raise SpecError(
            f"'{text}' is nothing that results can be compared by",
            path=path,
            because="it is not the path of an output below the work directory",
            hint="write outputs, stdout, a path like out/loss.txt, or a list of words",
        )


def _refuse_command(words: tuple[str, ...], path: str) -> None:
    size = sum(map(len, words))
    if not words or not words[0] or any("\0" in word for word in words):
        raise SpecError(
            "the command that compares is empty, or has a zero byte",
            path=path,
            hint="write it like [python3, -c, ...]",
        )
    if len(words) > ARGV_WORDS_MAX or size > ARGV_CHARS_MAX:
        raise SpecError(
            "the command that compares is too long",
            path=path,
            because=f"{len(words)} words, {size} characters; the most is "
            f"{ARGV_WORDS_MAX} and {ARGV_CHARS_MAX}",
            hint="put it into a script that the node has",
        )
