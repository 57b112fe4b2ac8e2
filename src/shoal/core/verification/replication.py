"""What the answers to one verified task amount to: one is accepted, or more are needed.

Theory of operation. A verified task runs on workers of different owners, one attempt
each; never on two workers of one owner, and never again where it was answered. How an
attempt ended is its *answer*. Two answers agree if their digests are equal. The
scheduler's host computes the digest from the outputs it fetched, so no worker can claim
one result and deliver another. A non-zero exit code and a timeout are answers, too: no
single worker can make a task fail. Failing is easy, so unless a trusted owner reports
it, a failure takes two answers more. An answer with nothing to compare, because its
outputs are empty, agrees with no other: workers that do nothing would all agree.

Once `copies` answers of different owners agree, the first of them is accepted and every
answer is judged by it (`standings`). One answer of the job's own owner is enough. If
`most` answers have come and too few agree, the task has failed, and nobody is blamed:
perhaps it is not deterministic.

These are plain functions of the answers so far, which are journalled. `verifier` says
what follows for attempts, and when one answer of a trusted owner is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from shoal.core.durability.journal import AnswerKept
from shoal.model.ids import OwnerId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.model.job import Verify
    from shoal.protocol.messages import Outcome

Trusts: TypeAlias = Callable[[OwnerId], bool]
"""Whether an owner is trusted."""

FAILURES_MORE: Final = 2
"""Answers beyond `copies` that it takes to accept a failure."""


class Ruling(msgspec.Struct, frozen=True):
    """What follows from the answers to a task so far."""

    do: Literal["accept", "trust", "ask", "give-up"]
    answer: AnswerKept | None = None  # the one that is accepted or trusted
    reason: str = ""


def is_answer(outcome: Outcome) -> bool:
    """Whether a task ended by itself, rather than by what happened to it."""
    return outcome.kind in ("exited", "timed-out")


def succeeded(outcome: Outcome) -> bool:
    """Whether an answer is a result."""
    return outcome.kind == "exited" and outcome.exit_code == 0


def key_of(outcome: Outcome) -> str:
    """Return the key that answers are compared by; empty if there is none."""
    if succeeded(outcome):
        return outcome.digest
    if outcome.kind == "timed-out":
        return "timed out"
    return f"exit code {outcome.exit_code}"


def rule(
    answers: Sequence[AnswerKept],
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
    answers: Sequence[AnswerKept],
    live: Iterable[OwnerId],
    verify: Verify,
    own: OwnerId,
    trusts: Trusts,
    *,
    checked: bool = False,
) -> int:
    """Return how many more attempts to start, assuming the live ones will agree."""
    owners = list(live)
    if verify.owners == "different" and own in owners:
        return 0
    if not answers and not checked and any(map(trusts, owners)):
        return 0
    missing = (_missing(same, verify, trusts) for same in _alike(answers).values())
    least = min(missing, default=verify.copies)
    most = verify.most - len(answers)
    return max(0, int(min(most, least, verify.copies)) - len(owners))


def _missing(same: Sequence[AnswerKept], verify: Verify, trusts: Trusts) -> float:
    """Return how many more equal answers it takes to accept this one."""
    outcome, voices = same[0].outcome, _voices(same, verify)
    if not key_of(outcome):
        return float("inf")
    if succeeded(outcome) or any(trusts(answer.owner) for answer in same):
        return verify.copies - voices
    return verify.copies + FAILURES_MORE - voices


def _is_result(outcome: Outcome) -> bool:
    return succeeded(outcome) and bool(key_of(outcome))


def _alike(answers: Iterable[AnswerKept]) -> dict[str, list[AnswerKept]]:
    found: dict[str, list[AnswerKept]] = {}
    for answer in answers:
        found.setdefault(key_of(answer.outcome), []).append(answer)
    return found


def _voices(answers: Iterable[AnswerKept], verify: Verify) -> int:
    if verify.owners == "any":
        return len({answer.worker for answer in answers})
    return len({answer.owner for answer in answers})


def _discord(answers: Sequence[AnswerKept], verify: Verify) -> str:
    alike = _alike(answers)
    empty = len(alike.pop("", ()))
    best = max((_voices(same, verify) for same in alike.values()), default=0)
    text = (
        f"of {len(answers)} results no {verify.copies} agree, "
        f"{len(alike)} are different, and at most {best} the same"
    )
    return f"{text}; {empty} had nothing to compare" if empty else text
