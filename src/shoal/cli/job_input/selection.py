"""Select jobs by id, by prefix of an id, `last`, `all`, or number: `1-3,5`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from shoal.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.api.client.client import Client

NUMBERS: Final = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
"""Generated ids begin with a letter, so a number is the first column of `ps`."""


def expanded(client: Client, selectors: Iterable[str]) -> list[str]:
    """Return one name per job; `all` means all jobs that have not ended."""
    names: list[str] = []
    for selector in selectors:
        if selector == "all":
            names += [job.id for job in client.jobs(active_only=True).jobs]
        elif NUMBERS.fullmatch(selector):
            names += _numbered(client, selector)
        else:
            names.append(selector)
    return list(dict.fromkeys(names))


def one(client: Client, selector: str) -> str:
    """Return the name of one job; the node resolves everything but numbers."""
    if selector == "all" or (NUMBERS.fullmatch(selector) and not selector.isdecimal()):
        raise UsageError(
            f"'{selector}' can mean several jobs",
            because="this command takes one job",
            hint="use an id, a prefix of it, a number, or last",
        )
    return _numbered(client, selector)[0] if selector.isdecimal() else selector


def one_task(client: Client, selector: str, task: str) -> tuple[str, str]:
    """Return the names of a job and of one of its tasks, if one is named.

    A user says JOB/TASK, or JOB and `--task`. The name of a job may have a slash too.
    """
    job, slash, named = selector.partition("/")
    if slash and not task and named:
        try:
            return client.get(selector, tasks_max=1).id, ""
        except NotFoundError:
            selector, task = job or "last", named
    return one(client, selector), task


def _numbered(client: Client, selector: str) -> list[str]:
    known = {job.number: job.id for job in client.jobs().jobs}
    found: list[str] = []
    for first, last in _ranges(selector):
        ids = [known[n] for n in sorted(known) if first <= n <= last]
        if not ids:
            what = f"there is no job {first}"
            if first != last:
                what = f"there are no jobs {first} to {last}"
            raise NotFoundError(
                what,
                because=f"{len(known)} jobs are known here",
                hint="`shoal ps --all` lists them with their numbers",
            )
        found += ids
    return found


def _ranges(selector: str) -> Iterator[tuple[int, int]]:
    for part in selector.split(","):
        first, dash, last = part.partition("-")
        yield int(first), int(last) if dash else int(first)
