"""What the results of one verified task say together: accepted, or more are wanted.

Theory of operation. A verified task runs on workers of different owners, each an
attempt of its own; never on two workers of one owner, and never where it has been
answered. What an attempt ended with is an answer. Two answers are the same if their
digests are: the host of the scheduler computes the digest of what it has fetched, so
no worker can claim one and deliver something else. An exit code other than 0, and a
time that ran out, are answers as well: no single worker can make a task fail. To fail
is easy, so where no trusted owner says so, it takes two answers more. An
answer with nothing to compare, because the outputs are empty, agrees with nobody: who
does not work at all would have that in common with all others who do not.

As soon as `copies` answers of different owners are the same, the first of these is
accepted, once, and every answer is judged by it (`standing`). A machine of the job's
own owner is believed alone. When `most` answers came and too few are the same, the
task has failed, and nobody is blamed: perhaps it is not deterministic.

These are plain functions of the answers so far, which are in the journal; `verifying`
says what follows from them for attempts, and when one answer of a trusted owner is
enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from shoal.core.journal import Answer
from shoal.model.ids import OwnerId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.model.job import Verify
    from shoal.protocol.messages import Outcome

Trusts: TypeAlias = Callable[[OwnerId], bool]
"""Whether an owner has earned its trust."""

FAILURES_MORE: Final = 2
"""So many more must say that a task fails than that it gives a result."""


class Ruling(msgspec.Struct, frozen=True):
    """What follows from the answers of a task so far."""

    do: Literal["accept", "trust", "ask", "give-up"]
    answer: Answer | None = None  # that is accepted, or trusted
    reason: str = ""


def is_answer(outcome: Outcome) -> bool:
    """Whether a task has ended like this by itself, and not by what befell it."""
    return outcome.kind in ("exited", "timed-out")


def succeeded(outcome: Outcome) -> bool:
    """Whether an answer is a result."""
    return outcome.kind == "exited" and outcome.exit_code == 0


def key_of(outcome: Outcome) -> str:
    """Return what answers are compared by; empty if there is nothing to compare."""
    if succeeded(outcome):
        return outcome.digest
    if outcome.kind == "timed-out":
        return "timed out"
    return f"exit code {outcome.exit_code}"


def rule(
    answers: Sequence[Answer],
    verify: Verify,
    own: OwnerId,
    trusts: Trusts,
    *,
    checked: bool = False,
) -> Ruling:
    """Say what follows from these answers.

    `own` is the owner of the job, whose machines are believed unless `owners` is any.
    One answer of an owner who is trusted is enough, if the task is not `checked`.
    """
    if verify.owners == "different":
        for answer in answers:
            if answer.owner == own:
                return Ruling("accept", answer)
    for same in _alike(answers).values():
        if _missing(same, verify, trusts) <= 0:
            return Ruling("accept", same[0])
    if len(answers) >= verify.most:
        return Ruling("give-up", reason=_discord(answers, verify))
    first = answers[0]
    is_alone = len(answers) == 1 and not checked
    if is_alone and trusts(first.owner) and _is_result(first.outcome):
        return Ruling("trust", first)
    return Ruling("ask")


def wanted(
    answers: Sequence[Answer],
    live: Iterable[OwnerId],
    verify: Verify,
    own: OwnerId,
    trusts: Trusts,
    *,
    checked: bool = False,
) -> int:
    """Return how many more attempts to start, if those that live will agree."""
    owners = list(live)
    if verify.owners == "different" and own in owners:
        return 0
    if not answers and not checked and any(map(trusts, owners)):
        return 0
    missing = (_missing(same, verify, trusts) for same in _alike(answers).values())
    least = min(missing, default=verify.copies)
    most = verify.most - len(answers)
    return max(0, int(min(most, least, verify.copies)) - len(owners))


def _missing(same: Sequence[Answer], verify: Verify, trusts: Trusts) -> float:
    """Return how many more of the same answer are enough to accept it."""
    outcome, voices = same[0].outcome, _voices(same, verify)
    if not key_of(outcome):
        return float("inf")
    if succeeded(outcome) or any(trusts(answer.owner) for answer in same):
        return verify.copies - voices
    return verify.copies + FAILURES_MORE - voices


def _is_result(outcome: Outcome) -> bool:
    return succeeded(outcome) and bool(key_of(outcome))


def _alike(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {}
    for answer in answers:
        found.setdefault(key_of(answer.outcome), []).append(answer)
    return found


def _voices(answers: Iterable[Answer], verify: Verify) -> int:
    if verify.owners == "any":
        return len({answer.worker for answer in answers})
    return len({answer.owner for answer in answers})


def _discord(answers: Sequence[Answer], verify: Verify) -> str:
    alike = _alike(answers)
    empty = len(alike.pop("", ()))
    best = max((_voices(same, verify) for same in alike.values()), default=0)
    text = (
        f"of {len(answers)} results no {verify.copies} agree, "
        f"{len(alike)} are different, and at most {best} the same"
    )
    return f"{text}; {empty} had nothing to compare" if empty else text
