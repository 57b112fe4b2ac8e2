"""Parameter types for jobs and nodes, with shell completion."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import click
from click.shell_completion import CompletionItem

from shoal.cli.terminal import safe_line
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import Job, Node

JOBS_MAX: Final = 50
WORDS: Final = {"last": "the most recent job", "all": "all active jobs"}


@final
class JobName(click.ParamType[str]):
    """A job: its id, a prefix of it, its name, `last`, or `all` where many may be."""

    name = "job"

    def __init__(self, words: tuple[str, ...] = ("last",)) -> None:
        self._words = words

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete with the latest jobs, newest first, and the special words."""
        from shoal.api.documents import state_of  # noqa: PLC0415 - Slow to import.

        words = [CompletionItem(word, help=WORDS[word]) for word in self._words]
        jobs = _jobs(ctx)
        items = [
            CompletionItem(
                safe_line(job.id), help=safe_line(f"{job.name}, {state_of(job.state)}")
            )
            for job in jobs
        ]
        once = Counter(safe_line(job.name) for job in jobs)
        items += [
            CompletionItem(name, help="a job of this name")
            for name, count in once.items()
            if count == 1 and incomplete and name
        ]
        return _beginning_with(incomplete, words + items)


@final
class NodeName(click.ParamType[str]):
    """A node: its id or its petname."""

    name = "node"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete with the petnames of known nodes."""
        items = [CompletionItem(safe_line(node.name.petname)) for node in _nodes(ctx)]
        return _beginning_with(incomplete, items)


JOB: Final = JobName()
JOBS: Final = JobName(("last", "all"))
NODE: Final = NodeName()


def _beginning_with(text: str, items: list[CompletionItem]) -> list[CompletionItem]:
    return [item for item in items if item.value.startswith(text)]


def _jobs(ctx: click.Context) -> list[Job]:
    from shoal.api.client import client as api  # noqa: PLC0415 - Slow to import.

    try:
        with api.connect(ctx.params.get("node")) as client:
            return list(reversed(client.jobs(jobs_max=JOBS_MAX).jobs))
    except ShoalError:
        return []  # A shell that completes is no place for complaints.


def _nodes(ctx: click.Context) -> list[Node]:
    from shoal.api.client import client as api  # noqa: PLC0415 - Slow to import.

    try:
        with api.connect(ctx.params.get("node")) as client:
            return list(client.nodes().nodes)
    except ShoalError:
        return []
