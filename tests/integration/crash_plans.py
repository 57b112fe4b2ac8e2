"""Kill a node at a failpoint, start it again, and look what became of its work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, tolerant
from tests.integration.live_work import Work, violations

from shoal.failpoints import NAMES
from shoal.net.identity.identity import Identity

REACH_S = 60.0
LATER_S = 10.0
SURELY_RENEWED_S = 9.0
"""A scheduler that is back so soon finds its leases alive: 15 s, less 4 s to renew."""

SLOTS_OF_ONE_WORKER = 2

_OF_WORKERS = ("send.offer", "send.committed", "send.started", "send.report")
_OF_BOTH = (
    "boot.replayed",
    "boot.opened",
    "record.incarnated",
    "kept.incarnated",
    "journal.commit",
    "journal.synced",
)
_ELSEWHERE = ("journal.swap", "libp2p.", "blob.")
"""How names begin of places that running tasks does not pass: other tests do."""


class Plan(NamedTuple):
    """Who dies where; `passing` counts how often it gets there alive before."""

    role: str
    name: str
    passing: int = 1
    action: str = "kill"

    def __str__(self) -> str:
        return f"{self.role}-{self.name}-{self.passing}-{self.action}"


_ALSO_LATER = [
    Plan("scheduler", "journal.commit", 2, "linger"),
    Plan("scheduler", "journal.commit", 4, "linger"),
    Plan("scheduler", "journal.synced", 3, "linger"),
    Plan("scheduler", "send.assignment", 3),
]
"""The first passing of these is at the start, where not all of them matters."""


def plans() -> list[Plan]:
    """Return every failpoint with every role that passes it."""
    found: list[Plan] = []
    for name in NAMES:
        if name.startswith(_ELSEWHERE):
            continue
        of_worker = name in _OF_WORKERS or name.startswith(("task.", "boot."))
        of_worker = of_worker or name in ("sent.report", *_OF_BOTH)
        only_worker = of_worker and name not in _OF_BOTH
        if not only_worker:
            found.append(Plan("scheduler", name))
        if of_worker:
            found.append(Plan("worker", name))
    return [*found, *_ALSO_LATER]


class Arena:
    """A shoal for one case after another; a case that fails gets it a new one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cases = 0
        self._work: Work | None = None
        self._rerun: list[str] = []  # cases in which workers were hurt

    @contextmanager
    def case(self) -> Iterator[Work]:
        """Lend the shoal, with all work so far."""
        self._cases += 1
        try:
            if self._work is None:
                shoal = LiveShoal(self._folder / f"shoal{self._cases}")
                self._work = Work(shoal)
                shoal.start()
            yield self._work
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the shoal."""
        if self._work is not None:
            self._work.shoal.close()
            self._work = None

    def run(self, plan: Plan) -> None:
        """Carry out a plan; raise with all that is wrong afterwards."""
        with self.case() as work:
            name = f"c{self._cases}"
            away_s = crash(work, plan, name)
            if plan.role == "worker" or away_s > SURELY_RENEWED_S:
                self._rerun += [f"{name}a-", f"{name}b-"]
            found = violations(work, rerun=self._rerun)
            assert not found, "\n".join(found)


def crash(work: Work, plan: Plan, name: str) -> float:
    """Crash a node twice, while tasks run and then at the failpoint.

    Returns how long it was away, when all work has ended.
    """
    shoal = work.shoal
    victim = shoal.boss if plan.role == "scheduler" else shoal.workers[0]
    work.mixed(f"{name}a", long_s=1.0)
    eventually(lambda: len(work.begun(f"{name}a")) >= 2, REACH_S, "tasks begin")
    began = time.monotonic()
    victim.kill()
    victim.start(f"{plan.name}:{plan.passing}:{plan.action}")
    eventually(victim.is_ready_or_dead, REACH_S, victim.log)
    if victim.alive:
        _provoke(work, victim, plan, f"{name}b")
    if not victim.died_by_failpoint(REACH_S if plan.passing == 1 else LATER_S):
        assert plan.passing > 1, f"{plan} was never reached"
        victim.kill()  # It does not get there as often as this.
    victim.start()
    victim.ready()
    shoal.meet()
    away_s = time.monotonic() - began
    work.finish()
    return away_s


def _provoke(work: Work, victim: LiveNode, plan: Plan, name: str) -> None:
    """Let everything happen that a failpoint may wait for."""
    work.hand_in()
    work.cancel_some()
    work.mixed(name, endless=SLOTS_OF_ONE_WORKER + 1)
    eventually(
        lambda: (
            len(work.begun(f"{name}-gone")) > SLOTS_OF_ONE_WORKER or not victim.alive
        ),
        REACH_S,
        "both workers run what is to be cancelled",
    )
    work.cancel_some()
    if plan.name.endswith(".revoked") and victim.alive:
        stranger = Identity.generate().node
        tolerant(victim, lambda: _revoke(victim, stranger))


def _revoke(node: LiveNode, peer: str) -> None:
    with node.client() as client:
        client.revoke(peer)
