"""What gangs put on the links above leaves, pods and sites.

A gang whose tasks sit in several domains of a level talks over the uplinks of each of
them. Two tell where gangs are: a scheduler knows the slots that it won for its own, and
each worker tells marks of those that it runs tasks of, whosever they are. The same mark
at two workers is the same gang, and counts once for each domain, whoever tells of it.

Counts follow each change, and do not go through all gangs: a shoal has thousands.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.model.ids import NodeId
    from shoal.policy.table.domains import DomainPath

PAIR: Final = 2
"""Domains of a gang from which on it talks over uplinks."""


@final
class LinkLoad:
    """How many gangs talk over the uplinks of each domain."""

    def __init__(self) -> None:
        self._paths: dict[NodeId, DomainPath] = {}  # of known workers
        self._told: dict[NodeId, tuple[str, ...]] = {}  # by workers, of themselves
        self._at: dict[NodeId, Counter[str]] = {}  # reasons to count a gang at a worker
        # By gang and level, the workers that it has in each domain.
        self._spread: dict[str, list[Counter[DomainPath]]] = {}
        self._crossing: Counter[DomainPath] = Counter()
        self.version = 0  # of what crosses

    def place(self, node: NodeId, path: DomainPath) -> None:
        """Note in which domains a worker is."""
        if self._paths.get(node) == path:
            return
        marks = list(self._at.get(node, ()))
        self._leave(node, marks)
        self._paths[node] = path
        for mark in marks:
            self._enter(mark, path)

    def forget(self, node: NodeId) -> None:
        """Forget where a worker is, and what it told."""
        self.tell(node, ())
        self._leave(node, list(self._at.get(node, ())))
        self._paths.pop(node, None)

    def tell(self, node: NodeId, marks: tuple[str, ...]) -> None:
        """Take over which gangs a worker says that it runs tasks of."""
        before = self._told.get(node, ())
        if before == marks:
            return
        for mark in dict.fromkeys(marks):
            self.add(node, mark)
        for mark in dict.fromkeys(before):
            self.remove(node, mark)
        if marks:
            self._told[node] = marks
        else:
            del self._told[node]

    def add(self, node: NodeId, mark: str) -> None:
        """Note one reason to count a gang at a worker."""
        at = self._at.setdefault(node, Counter())
        at[mark] += 1
        if at[mark] == 1 and (path := self._paths.get(node)) is not None:
            self._enter(mark, path)

    def remove(self, node: NodeId, mark: str) -> None:
        """Drop one reason to count a gang at a worker."""
        at = self._at[node]
        at[mark] -= 1
        if at[mark] > 0:
            return
        if at[mark] == 0 and node in self._paths:
            self._exit(mark, self._paths[node])
        del at[mark]
        if not at:
            del self._at[node]

    def gangs_at(self, node: NodeId) -> int:
        """Return how many gangs that are known have tasks at a worker."""
        return len(self._at.get(node, ()))

    @property
    def crossing(self) -> Mapping[DomainPath, int]:
        """How many gangs talk over the uplinks of each domain, if any."""
        return self._crossing

    def of(self, mark: str) -> list[DomainPath]:
        """Return the domains over whose uplinks one gang talks."""
        levels = self._spread.get(mark, ())
        return [domain for used in levels if len(used) > 1 for domain in used]

    # Counting.

    def _leave(self, node: NodeId, marks: list[str]) -> None:
        if (path := self._paths.get(node)) is not None:
            for mark in marks:
                self._exit(mark, path)

    def _enter(self, mark: str, path: DomainPath) -> None:
        levels = self._spread.setdefault(mark, [Counter() for _ in path])
        for depth, domains in enumerate(levels, start=1):
            domain = path[:depth]
            domains[domain] += 1
            if domains[domain] == 1 and len(domains) > 1:
                # The second makes the first one's talk go up, too.
                more = [*domains] if len(domains) == PAIR else [domain]
                self._crossing.update(more)
                self.version += 1

    def _exit(self, mark: str, path: DomainPath) -> None:
        levels = self._spread[mark]
        for depth, domains in enumerate(levels, start=1):
            domain = path[:depth]
            domains[domain] -= 1
            if domains[domain]:
                continue
            if len(domains) > 1:
                self.version += 1
                for each in [*domains] if len(domains) == PAIR else [domain]:
                    self._crossing[each] -= 1
                    if not self._crossing[each]:
                        del self._crossing[each]
            del domains[domain]
        if not levels[0]:
            del self._spread[mark]
