"""The shelf: which environments a worker makes, who waits for them, which ones go.

Theory of operation. An environment is made once and then used by many tasks, which
cannot write to it. It is *made* in the room of the first attempt that wants it, under
the limits of that attempt; others that want it meanwhile wait. If that attempt is told
to stop, the next one that waits makes it from the beginning. If the making fails, all
that wait for it have failed: it would fail for them too. Nothing is remembered of a
failure: a later attempt tries again.

Whose it is. Making an environment runs code of whoever asked for it, and that code
writes the environment. So its id names the owners for whom it was made, besides what
it is made of, and a task of other owners never gets it, not even for the same packages.
An id names the job too, if a setup made it. A *cache* is kept in the same way, except
that tasks of its owners write to it, and that it begins empty.

What goes. Environments in use are counted by attempt. When there are more than
`COUNT_MAX`, or when they take more room than the worker gives them, those that were
used least recently go, and never one that is in use or being made.

What others hear. A scheduler is told marks of the environments that its owner may use,
so that its tasks are placed where theirs is. Other owners hear nothing of them.

Soft state, except for what is on disk, which the host tells at the start of a life.
Attempts that wait are bounded by leases, environments by count.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.environments.events import KeptEnvironment, NeededEnvironment
from shoal.model.caches import environment_name, mark_of
from shoal.model.ids import Attempt, EnvironmentId, OwnerId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.environments.events import (
        EnvironmentGrown,
        EnvironmentMade,
        EnvironmentsFound,
    )
    from shoal.model.job import Task

COUNT_MAX: Final = 256
"""Environments that a worker keeps, however small they are."""

ENVIRONMENT_BYTES: Final = 50 << 30
DIGEST_BYTES: Final = 16
BUILDER_CACHE: Final = "uv"
"""The cache that makes environments: what was downloaded for one serves the next."""

Standing = Literal["ready", "make", "wait"]


def needed_by(task: Task, owners: tuple[OwnerId, ...]) -> tuple[NeededEnvironment, ...]:
    """Return what must be made before a task can start, in this order.

    A setup is one of its job. What it may leave behind depends on all of its work but
    the command, so steps that differ in nothing else share one.
    """
    work, found = task.work, list[NeededEnvironment]()
    caches = {*work.caches, BUILDER_CACHE} if work.python.is_made else {*work.caches}
    for name in sorted(caches):
        id_ = _id("cache", *owners, name)
        found.append(NeededEnvironment(id_, "cache", name))
    if work.python.is_made:
        name = environment_name(work.python)
        id_ = _id("python", *owners, name)
        found.append(NeededEnvironment(id_, "python", mark=mark_of(name)))
    if work.setup and not work.image:
        same = msgspec.structs.replace(work, argv=(), outputs=(), keep_stdout=False)
        content = msgspec.json.encode(same, order="deterministic").decode()
        id_ = _id("setup", *owners, task.job, content)
        found.append(NeededEnvironment(id_, "setup"))
    return tuple(found)


def _id(*parts: str) -> EnvironmentId:
    """Return an id that only the same parts have: they are told apart by length."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return EnvironmentId(digest.hexdigest()[: 2 * DIGEST_BYTES])


class _Making(msgspec.Struct):
    """An environment being made, its maker, and the `line` that waits for it."""

    maker: Attempt
    owners: tuple[OwnerId, ...]
    mark: str
    line: list[Attempt]


@final
class EnvironmentShelf:
    """The environments of one worker; see the module."""

    def __init__(self, bytes_max: int) -> None:
        """Keep at most this many bytes, and what is in use."""
        self._bytes_max = bytes_max
        self._kept: dict[EnvironmentId, KeptEnvironment] = {}  # least used first
        self._making: dict[EnvironmentId, _Making] = {}
        self._users: dict[EnvironmentId, set[Attempt]] = {}  # of kept ones

    @property
    def kept(self) -> tuple[EnvironmentId, ...]:
        """What is whole, the least recently used first."""
        return tuple(self._kept)

    def marks_for(self, owner: OwnerId) -> tuple[str, ...]:
        """Return the marks that a scheduler of this owner is told, newest first."""
        ours = [each for each in self._kept.values() if each.owners == (owner,)]
        return tuple(each.mark for each in reversed(ours) if each.mark)

    def found(self, event: EnvironmentsFound) -> list[EnvironmentId]:
        """Take over what is on disk; return what is to go."""
        for each in event.kept:
            self._kept[each.id] = each
        return self._evict()

    def grown(self, event: EnvironmentGrown) -> list[EnvironmentId]:
        """Note how large a cache is now; return what is to go."""
        if (kept := self._kept.get(event.id)) is not None:
            self._kept[event.id] = msgspec.structs.replace(kept, bytes=event.bytes)
        return self._evict()

    def want(
        self, attempt: Attempt, need: NeededEnvironment, owners: tuple[OwnerId, ...]
    ) -> Standing:
        """Say whether an attempt can use an environment, must make it, or waits."""
        if need.id in self._kept:
            self._use(attempt, need.id)
            return "ready"
        making = self._making.get(need.id)
        if making is None:
            self._making[need.id] = _Making(attempt, owners, need.mark, [])
            return "make"
        if making.maker == attempt:
            return "make"
        if attempt not in making.line:
            making.line.append(attempt)
        return "wait"

    def made(
        self, event: EnvironmentMade
    ) -> tuple[tuple[Attempt, ...], list[EnvironmentId]]:
        """Take in how a making ended.

        Return who goes on: all if it is whole or failed, and if it was stopped only its
        maker and the next one, who makes it now. And what is to go.
        """
        making = self._making.get(event.id)
        if making is None or making.maker != event.attempt:
            return (), []
        if event.stopped:
            return (making.maker, *self._hand_on(event.id)), []
        del self._making[event.id]
        waited = (making.maker, *making.line)
        if event.failure is not None:
            return waited, []
        self._kept[event.id] = KeptEnvironment(
            event.id, making.owners, event.bytes, making.mark
        )
        for attempt in waited:
            self._use(attempt, event.id)
        return waited, self._evict()

    def leave(
        self, attempt: Attempt
    ) -> tuple[tuple[Attempt, ...], list[EnvironmentId]]:
        """Note that an attempt has ended; return who makes now, and what is to go."""
        makers: list[Attempt] = []
        for id_, making in list(self._making.items()):
            if making.maker == attempt:
                makers += self._hand_on(id_)
            elif attempt in making.line:
                making.line.remove(attempt)
        for id_, users in list(self._users.items()):
            users.discard(attempt)
            if not users:
                del self._users[id_]
        return tuple(makers), self._evict()

    def _hand_on(self, id_: EnvironmentId) -> Iterable[Attempt]:
        making = self._making[id_]
        if not making.line:
            del self._making[id_]
            return ()
        making.maker = making.line.pop(0)
        return (making.maker,)

    def _use(self, attempt: Attempt, id_: EnvironmentId) -> None:
        self._kept[id_] = self._kept.pop(id_)  # Now it is the most recently used.
        self._users.setdefault(id_, set()).add(attempt)

    def _evict(self) -> list[EnvironmentId]:
        gone: list[EnvironmentId] = []
        size = sum(each.bytes for each in self._kept.values())
        for id_, each in list(self._kept.items()):
            if size <= self._bytes_max and len(self._kept) <= COUNT_MAX:
                break
            if id_ not in self._users:
                del self._kept[id_]
                size -= each.bytes
                gone.append(id_)
        return gone
