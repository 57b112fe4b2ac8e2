"""Bugs of verification, planted one by one: each must break the promise it is about."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest

from shoal.core import replication
from shoal.core.jobs import JobBook
from shoal.core.journal import Answer, Entry, Judged
from shoal.core.replication import Trusts
from shoal.core.verifying import Verifier
from shoal.model.ids import NodeId, OwnerId, TaskId
from shoal.model.job import Verify
from shoal.protocol.messages import Outcome
from shoal.sim.cheating import cheating_script, run_cheating
from shoal.sim.cheats import Cheat, Kind


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


def quorum_of_one(same: Sequence[Answer], verify: Verify, trusts: Trusts) -> float:
    """Accept the first answer that comes."""
    return _missing(same, verify, trusts) - 1


def nothing_agrees_with_nothing(outcome: Outcome) -> str:
    """Take it that who says nothing agrees with others who do."""
    return outcome.digest or "nothing"


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
