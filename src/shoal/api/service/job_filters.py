"""Which jobs a list of jobs shows: by state, name, owner and age."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING

from shoal.api.service import views
from shoal.runtime.calls.sessions import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api import shoal_pb2 as pb
    from shoal.core.records.records import JobRecord
    from shoal.runtime.node import Node


def kept(
    node: Node, records: Iterable[JobRecord], request: pb.ListRequest
) -> list[JobRecord]:
    """Return the jobs that a request asks for."""
    name = re.compile(translate(request.name)) if request.name else None
    states = frozenset(request.states)
    return [
        record
        for record in records
        if (request.interpreters or not _is_of_calls(record))
        and (not request.owner or record.job.owner == request.owner)
        and record.wall_s >= request.since_s
        and (name is None or name.match(record.job.name) is not None)
        and (not states or views.job_state(node, record) in states)
    ]


def _is_of_calls(record: JobRecord) -> bool:
    """Whether the tasks of a job are interpreters that run calls of functions."""
    return record.job.groups[0].tasks[0].work.driver == DRIVER
