"""Answers of a node as JSON, for `--json` and for the web page.

`reference/answers.py` documents each field. Fields may be added freely; any other
change raises `printing.VERSION`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.message import Message

from shoal.api import shoal_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from google.protobuf.descriptor import EnumDescriptor


def state_of(state: int) -> str:
    """Return the name of a state."""
    return pb.State.Name(state).removeprefix("STATE_").lower()


def when_of(prospect: pb.Prospect) -> str:
    """Return the name of when a task could start."""
    return pb.Prospect.When.Name(prospect.when).removeprefix("WHEN_").lower()


def fields_of(message: Message, *, without: Container[str] = ()) -> dict[str, Any]:
    """Return a message as JSON fields, by their names in the proto.

    States become words, optional values that are absent null. A node's id and petname
    stand in the object that they name.
    """
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in without:
            continue
        value = getattr(message, field.name)
        if isinstance(value, pb.NodeName) and (
            field.name == "name" or isinstance(message, pb.Verdict)
        ):
            fields |= name_fields(value)
        elif field.message_type is None and field.has_presence:
            is_there = message.HasField(field.name)
            fields[field.name] = value if is_there else None
        else:
            fields[field.name] = _plain(value, field.enum_type)
    return fields


def _plain(value: Any, enum: EnumDescriptor | None) -> Any:  # noqa: ANN401 - Any JSON value.
    if enum is not None:
        word = enum.values_by_number[value].name
        return word.removeprefix(f"{enum.name.upper()}_").lower()
    if isinstance(value, pb.Node):
        return node_fields(value)
    if isinstance(value, Message):
        return fields_of(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        many: Sequence[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return [_plain(each, None) for each in many]
    return value


def job_fields(job: pb.Job) -> dict[str, Any]:
    """Return a job as JSON fields, without its tasks."""
    fields = fields_of(job, without=("tasks", "steps", "more_steps"))
    counts = fields.pop("counts")
    parts = {
        "objective": fields["objective"] if job.objective.metric else None,
        "schedule": fields["schedule"] if _has_schedule(job) else None,
    }
    return {**fields, "tasks": counts, **_times(job), **parts}


def plan_fields(plan: pb.PlanReply) -> dict[str, Any]:
    """Return where a job would run, as JSON fields."""
    fields = fields_of(plan)
    return {**fields, "schedule": fields["schedule"] if _has_schedule(plan) else None}


def _has_schedule(what: pb.Job | pb.PlanReply) -> bool:
    return what.HasField("schedule")


def steps_fields(job: pb.Job) -> list[dict[str, Any]]:
    """Return the steps of a job as JSON fields."""
    return [
        {**fields_of(step), "time_limit_s": step.time_limit_s or None}
        for step in job.steps
    ]


def task_fields(task: pb.Task) -> dict[str, Any]:
    """Return a task as JSON fields."""
    return {
        **fields_of(task),
        **_times(task),
        "answers": _answers(task.answers),
        "params": params_of(task),
    }


def params_of(task: pb.Task) -> dict[str, Any]:
    """Return the params of a task, in their own types, in the order of its label."""
    return {name: _value(text) for name, text in sorted(task.params.items())}


def _value(text: str) -> Any:  # noqa: ANN401 - What JSON can have.
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # No node of ours sends such a thing.


def _times(what: pb.Job | pb.Task) -> dict[str, float | None]:
    return {"began_s": what.began_s or None, "ended_s": what.ended_s or None}


def _answers(answers: Iterable[pb.Verdict]) -> list[dict[str, Any]]:
    return [{**name_fields(one.node), "said": one.reason} for one in answers]


def name_fields(name: pb.NodeName) -> dict[str, str]:
    """Return a node's id and petname as JSON fields."""
    return {"id": name.id, "petname": name.petname}


def node_fields(node: pb.Node) -> dict[str, Any]:
    """Return a node as JSON fields."""
    standing = None
    if node.HasField("standing"):
        standing = fields_of(node.standing, without=("text",))
    return {
        **fields_of(node, without=("standing", "used", "machine", "withheld")),
        "standing": standing,
        "used": fields_of(node.used) if node.HasField("used") else None,
        "machine": fields_of(node.machine) if node.HasField("machine") else None,
        "withheld": fields_of(node.withheld) if node.HasField("withheld") else None,
        "away_since_s": node.away_since_s or None,
    }


def inspection_fields(reply: pb.InspectReply) -> dict[str, Any]:
    """Return one node, and what its machine does, as JSON fields."""
    tasks = [{**fields_of(t), "began_s": t.began_s or None} for t in reply.tasks]
    return {**fields_of(reply), "tasks": tasks}


def requests_fields(reply: pb.RequestsReply) -> dict[str, Any]:
    """Return requests to join, incoming and this node's own, as JSON fields."""
    fields = fields_of(reply)
    return fields if reply.HasField("near") else {**fields, "near": None}


def event_fields(event: pb.Event) -> dict[str, Any]:
    """Return an event as JSON fields."""
    given = {"job": event.job, "task": event.task, "node": event.HasField("node")}
    return fields_of(event, without=[name for name, told in given.items() if not told])


def explanation_fields(task: pb.TaskExplanation) -> dict[str, Any]:
    """Return the explanation of a task as JSON fields."""
    return {**fields_of(task), "answers": _answers(task.answers)}


def piece_fields(piece: pb.LogPiece) -> dict[str, object]:
    """Return a piece of output as JSON fields."""
    if piece.missing:
        keys = {"task": piece.task, "attempt": piece.attempt}
        return {**keys, "missing": piece.missing}
    text = piece.data.decode(errors="replace")
    fields: dict[str, object] = {
        "task": piece.task,
        "stream": stream_of(piece),
        "attempt": piece.attempt,
        "offset": piece.offset,
        "text": text,
    }
    if piece.times:
        fields["times"] = [fields_of(each) for each in piece.times]
    if text.encode() != piece.data:
        fields["base64"] = base64.b64encode(piece.data).decode()
    return fields


def stream_of(piece: pb.LogPiece) -> str:
    """Return the name of the stream of a piece of output."""
    return pb.Stream.Name(piece.stream).removeprefix("STREAM_").lower()
