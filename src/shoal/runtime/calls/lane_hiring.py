"""Hire the interpreters of one pool by submitting ordinary jobs.

The call exchange decides how many lanes to hire. `hire` submits a job of that many
tasks and feeds `LanesHired`, then `LanesAccepted` or `LanesRefused`. A pool has at
most `LANES_MAX` lanes, or `LANES_DEFAULT_MAX` if the client names no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.calls.events import LanesAccepted, LanesHired, LanesRefused
from shoal.errors import NotAllowedError, ShoalError, UsageError
from shoal.model.derive import derive, profiles_of
from shoal.model.ids import JobId
from shoal.model.spec.spec import PythonSpec, RetrySpec
from shoal.model.spec.submission import load_spec
from shoal.runtime.artifacts.artifacts import needs_artifacts

if TYPE_CHECKING:
    from shoal.model.spec.spec import JobSpec
    from shoal.runtime.calls.sessions import CallingNode
    from shoal.runtime.clients import Submitter

LANES_MAX: Final = 1_024
LANES_DEFAULT_MAX: Final = 64


@final
class LaneHiring:
    """Submits jobs whose tasks are the interpreters of one pool."""

    def __init__(
        self, node: CallingNode, pool: str, spec: str, submitter: Submitter
    ) -> None:
        """Parse the spec; raise if it is invalid. Job ids begin with `pool`."""
        self._node = node
        self.pool = pool
        self._submitter = submitter
        self._spec = _lane_spec(spec)
        _check_rights(self._spec, submitter)
        self._made = 0

    def most(self, wanted: int) -> int:
        """Return the lane limit when the client wants `wanted` (0: no limit)."""
        return min(wanted, LANES_MAX) or self._room()

    async def hire(self, count: int) -> None:
        """Submit a job of `count` interpreters; feed the result."""
        name = JobId(f"{self.pool}-{self._made}")
        self._made += 1
        node, submitter, pool = self._node, self._submitter, self.pool
        spec = msgspec.structs.replace(self._spec, array=count)
        try:
            job = derive(spec, name, submitter.owner or node.owner)
            if needs_artifacts(job):
                await node.artifacts.admit(job)
        except ShoalError as error:
            node.feed(LanesRefused(pool, count, str(error)))
            return
        tasks = tuple(task.id for task in job.tasks())
        node.feed(LanesHired(pool, name, tasks))
        answer = await node.clients.submit(job, submitter)
        if answer.refused:
            node.feed(LanesRefused(pool, count, answer.refused, tasks))
        else:
            node.feed(LanesAccepted(pool, name, tasks))

    def _room(self) -> int:
        """Return how many lanes the known workers could run if idle."""
        scheduler = self._node.scheduler
        assert scheduler is not None
        profile = profiles_of(self._spec)[0]
        table, fitting = scheduler.views.table, 0
        for node in table.nodes():
            view = table.view(node)
            if view is None:
                continue
            capacity = view.capacity
            counts = [capacity.cpu_milli // max(1, profile.cpu_milli)]
            if profile.memory_bytes:
                counts.append(capacity.memory_bytes // profile.memory_bytes)
            if profile.gpu is not None:
                counts.append(len(capacity.devices) // profile.gpu.count)
            fitting += min(counts)
        return max(1, min(fitting, LANES_DEFAULT_MAX))


def _check_rights(spec: JobSpec, submitter: Submitter) -> None:
    """Raise if another member's lanes would see this user's secrets or files."""
    if spec.secrets and not submitter.uses_secrets:
        raise NotAllowedError(
            "this client may not use the secrets of this node",
            because="they are for its user, and for admins of the same owner",
            hint="call functions by a node of your own, with `shoal secret set` there",
        )
    python = spec.python
    files = spec.workdir or (isinstance(python, PythonSpec) and python.files)
    if files and submitter.owner is not None:
        raise NotAllowedError(
            "interpreters for a member of another node cannot have a workdir or files",
            because="nobody looks whose files these are",
            hint="pass what a function needs as an argument",
        )


def _lane_spec(text: str) -> JobSpec:
    """Return the spec of one lane; reject options that do not apply to lanes."""
    spec = load_spec(text, "json")
    for name in ("array", "sweep", "steps", "recipe"):
        if getattr(spec, name):
            raise UsageError(
                f"interpreters cannot have `{name}`",
                because="the node decides how many of them there are",
                hint="submit that as a job of its own",
            )
    return msgspec.structs.replace(
        spec,
        name=spec.name or "calls",
        driver="python",
        nodes=1,
        retry=RetrySpec(max=0),
    )
