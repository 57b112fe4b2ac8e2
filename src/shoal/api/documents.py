"""Answers of a node as JSON, for `--json` and for the web page.

`cli/reference/answers.py` documents each field. Fields may be added freely; any other
change raises `printing.VERSION`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from shoal.api import shoal_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

_COUNTS: Final = pb.Counts.DESCRIPTOR.fields
_AMOUNTS: Final = pb.Amounts.DESCRIPTOR.fields


def state_of(state: int) -> str:
    """Return the name of a state."""
    return pb.State.Name(state).removeprefix("STATE_").lower()


def when_of(prospect: pb.Prospect) -> str:
    """Return the name of when a task could start."""
    return pb.Prospect.When.Name(prospect.when).removeprefix("WHEN_").lower()


def job_fields(job: pb.Job) -> dict[str, Any]:
    """Return a job as JSON fields."""
    counts = {field.name: getattr(job.counts, field.name) for field in _COUNTS}
    fields: dict[str, Any] = {
        "id": job.id,
        "number": job.number,
        "name": job.name,
        "owner": job.owner,
        "state": state_of(job.state),
        "reason": job.reason,
        "priority": job.priority,
        "submitted_s": job.submitted_s,
        "began_s": job.began_s or None,
        "ended_s": job.ended_s or None,
        "tasks": counts,
        "nodes": [name_fields(node) for node in job.nodes],
        "exit_code": job.exit_code if job.HasField("exit_code") else None,
        "fraction": job.fraction if job.HasField("fraction") else None,
    }
    return fields


def task_fields(task: pb.Task) -> dict[str, Any]:
    """Return a task as JSON fields."""
    return {
        "id": task.id,
        "state": state_of(task.state),
        "reason": task.reason,
        "attempts": task.attempts,
        "exit_code": task.exit_code if task.HasField("exit_code") else None,
        "nodes": [name_fields(node) for node in task.nodes],
        "argv": list(task.argv),
        "recipe": task.recipe,
        "needs": task.needs,
        "fraction": task.fraction if task.HasField("fraction") else None,
        "metrics": dict(task.metrics),
        "began_s": task.began_s or None,
        "ended_s": task.ended_s or None,
        "answers": _answers_fields(task.answers),
    }


def _answers_fields(answers: Iterable[pb.Verdict]) -> list[dict[str, Any]]:
    return [{**name_fields(one.node), "said": one.reason} for one in answers]


def name_fields(name: pb.NodeName) -> dict[str, str]:
    """Return a node's id and petname as JSON fields."""
    return {"id": name.id, "petname": name.petname}


def node_fields(node: pb.Node) -> dict[str, Any]:
    """Return a node as JSON fields."""
    return {
        **name_fields(node.name),
        "self": node.self,
        "worker": node.worker,
        "total": _amount_fields(node.total),
        "free": _amount_fields(node.free),
        "devices": [
            {
                "id": device.id,
                "vendor": device.vendor,
                "model": device.model,
                "memory_bytes": device.memory_bytes,
                "free_milli": device.free_milli,
            }
            for device in node.devices
        ],
        "active": node.active,
        "draining": node.draining,
        "drivers": list(node.drivers),
        "networked": list(node.networked),
        "terms": node.terms,
        "weaker": list(node.weaker),
        "labels": dict(node.labels),
        "rtt_us": node.rtt_us,
        "path": node.path,
        "standing": _standing_fields(node.standing)
        if node.HasField("standing")
        else None,
    }


def _standing_fields(standing: pb.Standing) -> dict[str, Any]:
    return {
        "trust": standing.trust,
        "judged": standing.judged,
        "disagreed": standing.disagreed,
    }


def _amount_fields(amounts: pb.Amounts) -> dict[str, int]:
    return {field.name: getattr(amounts, field.name) for field in _AMOUNTS}


def requests_fields(reply: pb.RequestsReply) -> dict[str, Any]:
    """Return requests to join, incoming and this node's own, as JSON fields."""
    near = None
    if reply.HasField("near"):
        asked = reply.near
        state = {"code": asked.code, "state": asked.state}
        near = {**name_fields(asked.name), "shoal": asked.shoal, **state}
    newcomers = [
        {**name_fields(one.name), "has": one.has, "code": one.code}
        for one in reply.newcomers
    ]
    return {"shoal": reply.shoal, "newcomers": newcomers, "near": near}


def event_fields(event: pb.Event) -> dict[str, Any]:
    """Return an event as JSON fields."""
    fields: dict[str, Any] = {
        "number": event.number,
        "at_s": event.at_s,
        "what": event.what,
        "text": event.text,
    }
    if event.job:
        fields["job"] = event.job
    if event.task:
        fields["task"] = event.task
    if event.HasField("node"):
        fields["node"] = name_fields(event.node)
    return fields


def explanation_fields(task: pb.TaskExplanation) -> dict[str, Any]:
    """Return the explanation of a task as JSON fields."""
    return {
        "task": task.task,
        "state": state_of(task.state),
        "needs": task.needs,
        "why": list(task.why),
        "nodes": [name_fields(node) for node in task.nodes],
        "refused": [_verdict(verdict) for verdict in task.refused],
        "rejected": [_verdict(verdict) for verdict in task.rejected],
        "fitting": task.fitting,
        "helps": list(task.helps),
        "cached": list(task.cached),
        "answers": _answers_fields(task.answers),
    }


def _verdict(verdict: pb.Verdict) -> dict[str, str]:
    return {**name_fields(verdict.node), "reason": verdict.reason}


def plan_fields(reply: pb.PlanReply) -> dict[str, Any]:
    """Return the plan of a job as JSON fields."""
    return {
        "fits_now": reply.fits_now,
        "needs": reply.needs,
        "groups": [group_fields(group) for group in reply.groups],
        "more": reply.more,
    }


def group_fields(group: pb.GroupPlan) -> dict[str, Any]:
    """Return the plan of one group as JSON fields."""
    return {
        "group": group.group,
        "tasks": group.tasks,
        "needs": group.needs,
        "least": group.least,
        "room": group.room,
        "prospects": [
            {
                "node": node_fields(prospect.node),
                "when": when_of(prospect),
                "slots": prospect.slots,
                "why": prospect.why,
            }
            for prospect in group.prospects
        ],
        "more": group.more,
        "helps": list(group.helps),
    }


def piece_fields(piece: pb.LogPiece) -> dict[str, object]:
    """Return a piece of output as JSON fields."""
    text = piece.data.decode(errors="replace")
    fields: dict[str, object] = {
        "task": piece.task,
        "stream": stream_of(piece),
        "attempt": piece.attempt,
        "offset": piece.offset,
        "text": text,
    }
    if text.encode() != piece.data:
        fields["base64"] = base64.b64encode(piece.data).decode()
    return fields


def stream_of(piece: pb.LogPiece) -> str:
    """Return the name of the stream of a piece of output."""
    return pb.Stream.Name(piece.stream).removeprefix("STREAM_").lower()
