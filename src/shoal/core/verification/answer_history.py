"""The answers to a verified task, and the standing of workers, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.core.verification.replication import key_of, succeeded
from shoal.core.verification.standings import TRUSTED_AFTER

if TYPE_CHECKING:
    from shoal.core.durability.journal import AnswerKept
    from shoal.core.records.records import GroupRecord, TaskRecord
    from shoal.core.verification.standings import Standings
    from shoal.model.ids import NodeId

DIGEST_CHARS: Final = 8


def answers_of(record: TaskRecord) -> list[tuple[NodeId, str]]:
    """Return what each worker answered or, once that is known, if it was right."""
    accepted = None if record.outcome is None else key_of(record.outcome)
    if not record.ended or accepted is None:
        return [(answer.worker, _said(answer)) for answer in record.answers]
    if len(record.answers) == 1:
        return [(record.answers[0].worker, "believed")]
    return [
        (
            answer.worker,
            "agreed" if key_of(answer.outcome) == accepted else _dissent(answer),
        )
        for answer in record.answers
    ]


def what_is_missing(record: TaskRecord, group: GroupRecord) -> list[str]:
    """Say what a verified task waits for besides a slot."""
    verify = group.group.verify
    if verify is None or record.ended:
        return []
    whose = "other owners" if verify.owners == "different" else "other workers"
    if not record.answers:
        return [f"{verify.copies} results of different owners must agree"]
    if record.live or record.task.id in group.waiting:
        came = f"{len(record.answers)} of at most {verify.most} results came"
        return [f"{came}; {verify.copies} must agree, so {whose} are asked"]
    return ["its one result is held until a later one of its owner was compared"]


def standing_of(
    standings: Standings, worker: NodeId, wall_s: float
) -> tuple[str, int, int] | None:
    """Return how far a worker is trusted, and how many results were wrong."""
    found = standings.tally(worker)
    if found is None:
        return None
    owner, tally = found
    return standings.trust(owner, wall_s), tally.judged, tally.disagreed


def trust_text(trust: str, judged: int, disagreed: int) -> str:
    """Say in a few words how far a worker is trusted."""
    if disagreed:
        return f"{disagreed} disagreed of {judged}"
    if trust == "trusted":
        return f"trusted, all {judged} agreed"
    return f"{judged} agreed, trusted at {TRUSTED_AFTER}"


def _said(answer: AnswerKept) -> str:
    key = key_of(answer.outcome)
    if succeeded(answer.outcome):
        return f"result {key[:DIGEST_CHARS]}" if key else "nothing to compare"
    return key


def _dissent(answer: AnswerKept) -> str:
    if not succeeded(answer.outcome):
        return f"failed: {key_of(answer.outcome)}"
    return "disagreed" if key_of(answer.outcome) else "disagreed: nothing to compare"
