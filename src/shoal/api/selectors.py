"""Resolves how users name nodes, jobs and tasks: by id, prefix, petname, or `last`."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from shoal.api.node_names import nodes_called
from shoal.core.records.array_states import name_of
from shoal.core.records.census import counts_in
from shoal.errors import MovedError, NoJobError, NotFoundError, UsageError
from shoal.model.ids import NodeId, TaskId
from shoal.model.job import TaskArray
from shoal.model.job_notes import TASKS_FOLLOWED_MAX
from shoal.model.spec.limits import TASKS_LISTED_MAX
from shoal.net.identity.identity import public_key
from shoal.net.identity.petname import petname

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.core.records.records import GroupRecord, JobRecord, TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.job import Job, TaskState
    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.node import Node

ID_BEGINS: Final = "12D3KooW"


def known_nodes(node: Node, network: NodeNetwork) -> list[NodeId]:
    """Return all other known nodes, linked ones first."""
    known = dict.fromkeys(network.links.peers)
    if node.scheduler is not None:
        known.update(dict.fromkeys(node.scheduler.views.table.nodes()))
    known.update((each, None) for each, _ in network.acquaintances)
    known.pop(node.id, None)
    return list(known)


def node_called(selector: str, known: Iterable[NodeId]) -> NodeId:
    """Return the node a selector means: a known one, or any by its full id."""
    found = nodes_called(selector, {node: petname(node) for node in known})
    if len(found) > 1:
        named = ", ".join(petname(each) for each in found[:CANDIDATES_NAMED_MAX])
        raise UsageError(
            f"'{selector}' could be {len(found)} nodes",
            because=f"the names or ids of {named} begin so",
            hint="type more of it; `shoal nodes --json` shows whole ids",
        )
    if not found and not selector.startswith(ID_BEGINS):
        raise NotFoundError(
            f"there is no node '{selector}'",
            because="none that is known here has this name",
            hint="`shoal nodes` lists them; one that has left goes by its whole id",
        )
    if not found:
        public_key(NodeId(selector))  # Raises if it is not a node id.
    return found[0] if found else NodeId(selector)


JOB_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
CANDIDATES_NAMED_MAX: Final = 5
DIGITS_MAX: Final = 15


def is_id(text: str) -> bool:
    """Whether a text could be the id of a job."""
    return text != "last" and JOB_ID.fullmatch(text) is not None


def check_id(id_: str) -> None:
    """Raise `UsageError` unless the text is a valid job id."""
    if JOB_ID.fullmatch(id_) is None:
        raise UsageError(
            f"'{id_[:80]}' cannot be the id of a job",
            because="an id is 1 to 64 letters, digits, dashes and underscores",
            hint="draw one at random, such as 7k2f9q",
        )


def job_called(selector: str, records: list[JobRecord]) -> JobRecord:
    """Return the job that a selector means, among those visible to the caller."""
    last, _, name = selector.partition(":")
    if last == "last":
        named = [r for r in records if not name or r.job.name == name]
        if named:
            return max(named, key=lambda record: record.wall_s)
    found = [
        record
        for record in records
        if selector
        and (record.job.id.startswith(selector) or record.job.name == selector)
    ]
    for record in found:
        if record.job.id == selector:
            return record
    schedules = [r for r in found if r.job.schedule and r.state == "active"]
    if len(schedules) == 1:
        return schedules[0]  # Its runs are called like it.
    if len(found) == 1:
        return found[0]
    if not found:
        raise _no_job(selector, len(records))
    raise _several(selector, found)


def _several(selector: str, found: list[JobRecord]) -> UsageError:
    found = sorted(found, key=lambda record: record.wall_s, reverse=True)
    listed = [
        f"{record.job.id} ({record.job.name})" if record.job.name else record.job.id
        for record in found[:CANDIDATES_NAMED_MAX]
    ]
    more = len(found) - len(listed)
    if any(record.job.name == selector for record in found):
        hint = f"use an id; `last:{selector}` is the newest of that name"
    else:
        hint = "type one letter more"
    return UsageError(
        f"'{selector}' could be {len(found)} jobs",
        because=f"newest first: {', '.join(listed)}" + (f", {more} more" * (more > 0)),
        hint=hint,
    )


def tasks_called(selector: str, record: JobRecord, book: JobBook) -> list[TaskRecord]:
    """Return the tasks that a selector means; if it is empty, all, or the first ones.

    A job has more than `TASKS_FOLLOWED_MAX` only if a large array is in it.
    """
    if not selector:
        return some_tasks(book, record.job, frozenset(), 0, TASKS_FOLLOWED_MAX)
    full = f"{record.job.id}.{selector}"
    for id_ in (full, selector):
        if (found := book.tasks.get(TaskId(id_))) and found.task.job == record.job.id:
            return [found]
    place = (
        int(selector) if selector.isdecimal() and len(selector) <= DIGITS_MAX else -1
    )
    if place >= 0 and (tasks := some_tasks(book, record.job, frozenset(), place, 1)):
        return tasks
    if labelled := _labelled(selector, record.job, book):
        return labelled  # Several: a gang, or points of several steps.
    raise NotFoundError(
        f"no task '{selector}' in job {record.job.id}",
        because=_names(record.job),
        hint=f"`shoal show {record.job.id}` lists them",
    )


def is_number(text: str) -> bool:
    """Whether a text can be the place of a task."""
    return text.isdecimal() and text.isascii() and len(text) <= DIGITS_MAX


def _labelled(label: str, job: Job, book: JobBook) -> list[TaskRecord]:
    found: list[TaskRecord] = []
    for group in job.groups:
        tasks = group.tasks
        if not isinstance(tasks, TaskArray):
            found += [book.tasks[task.id] for task in tasks if task.label == label]
        elif is_number(label):
            place, rest = divmod(int(label) - tasks.start, tasks.step)
            if not rest and 0 <= place < len(tasks):
                found.append(book.tasks[tasks[place].id])
    return found


def some_tasks(
    book: JobBook, job: Job, states: frozenset[TaskState], first: int, most: int
) -> list[TaskRecord]:
    """Return tasks of a job in any of these states, if some are named.

    The `first` of them are left out, and no more than `most` are returned.
    """
    if not states:
        return _records_at(book, job, first, most)
    chosen = itertools.chain.from_iterable(
        _ids_in(book.groups[group.id], book, states) for group in job.groups
    )
    return [book.tasks[id_] for id_ in itertools.islice(chosen, first, first + most)]


def _records_at(book: JobBook, job: Job, first: int, most: int) -> list[TaskRecord]:
    found: list[TaskRecord] = []
    for group in job.groups:
        count = len(group.tasks)
        places = range(min(first, count), min(first + most - len(found), count))
        found += [book.tasks[group.tasks[place].id] for place in places]
        first = max(0, first - count)
    return found


def _ids_in(
    group: GroupRecord, book: JobBook, states: frozenset[TaskState]
) -> Iterator[TaskId]:
    if group.array is not None:
        for place in group.array.places(states):
            yield name_of(group.id, place)
        return
    for task in group.group.tasks:
        if book.tasks[task.id].state in states:
            yield task.id


def done_of(book: JobBook, job: Job) -> set[TaskId]:
    """Return the tasks of a job that are done; an error if too many others are left."""
    done: set[TaskId] = set()
    for group in (book.groups[group.id] for group in job.groups):
        if group.array is not None and group.array.kept["done"]:
            left = len(group.group.tasks) - counts_in(book, group)["done"]
            _refuse_many_left(job, left)
        done.update(_ids_in(group, book, frozenset({"done"})))
    return done


def _refuse_many_left(job: Job, left: int) -> None:
    if left > TASKS_LISTED_MAX:
        raise UsageError(
            f"{left:,} tasks of job {job.id} are left, too many to choose",
            because=f"a job may have {TASKS_LISTED_MAX:,} tasks that are not all "
            "of one array",
            hint=f"`shoal retry {job.id}` runs all of it again",
        )


def _names(job: Job) -> str:
    """Say how the tasks of a job can be called."""
    count = sum(len(group.tasks) for group in job.groups)
    if count == 1:
        return "it has one task, which is 0"
    text = f"it has {count:,} tasks, 0 to {count - 1}"
    labels = list(dict.fromkeys(task.label for task in job.models() if task.label))
    if not labels or labels[0].isdigit():
        return text
    more = ", ..." if len(labels) > CANDIDATES_NAMED_MAX else ""
    return f"{text}, called {', '.join(labels[:CANDIDATES_NAMED_MAX])}{more}"


def moved(job: str, at: NodeId, why: str, *, forwarded: bool = False) -> MovedError:
    """Return the error for a job that another node has."""
    name = petname(at)
    return MovedError(
        f"job '{job}' is on another node",
        at,
        because=f"{name} {why}",
        hint=f"add `--node {name}`; `shoal ps --everywhere` shows where it is now",
        forwarded=forwarded,
    )


def _no_job(selector: str, known: int) -> NoJobError:
    if not known:
        return NoJobError(
            selector,
            f"no job '{selector}'" if selector != "last" else "there is no last job",
            because="nothing was ever submitted here",
            hint="`shoal run -- COMMAND` submits something; "
            "`shoal ps --everywhere` looks on your other nodes",
        )
    return NoJobError(
        selector,
        f"no job '{selector}'",
        because=f"none of the {known} jobs here has this name, or an id that begins so",
        hint="`shoal ps --all` lists them; it may be on another node: "
        "`shoal ps --everywhere` looks on your other nodes",
    )
