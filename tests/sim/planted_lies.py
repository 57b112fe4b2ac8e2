"""Bugs of verification, planted one by one: each must break the promise it is about."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest

from shoal.core.artifacts import result_intake
from shoal.core.durability.journal import AnswerKept, Entry, Judged
from shoal.core.scheduling.job_book import JobBook
from shoal.core.verification import replication
from shoal.core.verification.replication import Trusts
from shoal.core.verification.verifier import Verifier
from shoal.model.ids import NodeId, OwnerId, TaskId
from shoal.model.job import Verify
from shoal.protocol.messages import Outcome, Report
from shoal.sim.faults.cheating import cheating_script, run_cheating
from shoal.sim.faults.cheats import Cheat, Kind


class Lie(NamedTuple):
    """What is wrong, what is replaced to make it so, and which promise that breaks."""

    name: str
    owner: Any
    method: str
    replacement: Callable[..., Any]
    promise: str


_missing = replication._missing
_judge = JobBook.judge


def placed_at_the_same_owner(
    self: Verifier, task: TaskId, owner: OwnerId, worker: NodeId
) -> bool:
    """Ask whoever has room, once more."""
    return True


def disagreement_not_counted(self: JobBook, entry: Judged) -> list[Entry]:
    """Think well of everybody."""
    return [] if entry.verdict == "disagreed" else _judge(self, entry)


def quorum_of_one(same: Sequence[AnswerKept], verify: Verify, trusts: Trusts) -> float:
    """Accept the first answer that comes."""
    return _missing(same, verify, trusts) - 1


def nothing_agrees_with_nothing(outcome: Outcome) -> str:
    """Take it that who says nothing agrees with others who do."""
    return outcome.digest or "nothing"


def claimed_digest_believed(report: Report, digest: str) -> Report:
    """Take the digest that the worker names."""
    return report


LIES: Final = (
    Lie(
        "replica at the same owner",
        Verifier,
        "_is_new_to",
        placed_at_the_same_owner,
        "V3",
    ),
    Lie(
        "disagreement not counted",
        JobBook,
        "judge",
        disagreement_not_counted,
        "V4",
    ),
    Lie(
        "claimed digest believed",
        result_intake,
        "_with_digest",
        claimed_digest_believed,
        "V1",
    ),
    Lie("quorum of one", replication, "_missing", quorum_of_one, "V1"),
    Lie(
        "nothing agrees with nothing",
        replication,
        "key_of",
        nothing_agrees_with_nothing,
        "V1",
    ),
)


def found_by(lie: Lie, seeds: int) -> str:
    """Return the promise that the first seed finds broken; empty if none does."""
    kind: Kind = "lazy" if "nothing" in lie.name else "always"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lie.owner, lie.method, lie.replacement)
        for seed in range(seeds):
            script = cheating_script(seed, [Cheat(kind)] * 4, workers=8, tasks=(60,))
            if violations := run_cheating(seed, script).violations:
                return violations[0].partition(" ")[0]
    return ""
