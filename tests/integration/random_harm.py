"""A shoal at work while its nodes are killed, frozen and started again at random."""

import signal
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.integration.live_shoal import LiveNode, LiveShoal, live_shoal
from tests.integration.live_work import Work, violations

from shoal.errors import ShoalError

WORKERS = 4
OPEN_JOBS_MAX = 15
PAUSE_S = (0.2, 3.0)
FREEZE_S = (0.2, 9.0)
AWAY_S = (0.0, 4.0)
"""How long a dead node stays away. Longer than leases last would be another test."""

FINISH_S = 300.0


class Harm:
    """Who is frozen or dead, and until when."""

    def __init__(self, shoal: LiveShoal, rng: Random) -> None:
        self.done: Counter[str] = Counter()
        self._shoal = shoal
        self._rng = rng
        self._due: dict[LiveNode, tuple[float, str]] = {}

    def go_on(self) -> None:
        """Wake and start whoever has been away long enough."""
        now = time.monotonic()
        for node, (at, what) in list(self._due.items()):
            if now >= at:
                self._restore(node, what)

    def strike(self) -> None:
        """Hurt one node, unless it suffers already."""
        node = self._rng.choice(self._shoal.nodes)
        if node in self._due or not node.alive:
            return
        now = time.monotonic()
        if self._rng.random() < 0.3:
            node.signal(signal.SIGSTOP)
            self._due[node] = (now + self._rng.uniform(*FREEZE_S), "wake")
            self.done["freeze"] += 1
        else:
            node.kill()
            self._due[node] = (now + self._rng.uniform(*AWAY_S), "start")
            self.done["kill"] += 1

    def heal(self) -> None:
        """Bring all back."""
        for node, (_, what) in list(self._due.items()):
            self._restore(node, what)
        for node in self._shoal.nodes:
            node.ready()
        self._shoal.meet()

    def is_up(self, node: LiveNode) -> bool:
        """Whether a node can be asked something."""
        return node not in self._due and node.alive and node.is_ready_or_dead()

    def _restore(self, node: LiveNode, what: str) -> None:
        del self._due[node]
        if what == "wake":
            node.signal(signal.SIGCONT)
        else:
            node.start()


def harm(folder: Path, rng: Random, seconds: float) -> dict[str, int]:
    """Let a shoal work under harm; raise if anything is wrong when it is over."""
    shoal = LiveShoal(folder, WORKERS)
    with live_shoal(shoal):
        work, hurt = Work(shoal), Harm(shoal, rng)
        until = time.monotonic() + seconds
        cases = 0
        while time.monotonic() < until:
            hurt.go_on()
            hurt.strike()
            if hurt.is_up(shoal.boss):
                work.hand_in()
                work.cancel_some()
                if open_jobs(work) < OPEN_JOBS_MAX:
                    cases += 1
                    work.mixed(f"h{cases}", long_s=rng.uniform(0.1, 3.0), endless=1)
            time.sleep(rng.uniform(*PAUSE_S))
        hurt.heal()
        work.finish(FINISH_S)
        found = violations(work, rerun=["h"])
        assert not found, "\n".join(found)
        return {"jobs": len(work.orders), **hurt.done}


def open_jobs(work: Work) -> int:
    """Return how many jobs have not ended; many, if the node does not say."""
    try:
        return sum(end == "open" for end in work.states().values())
    except ShoalError:
        return OPEN_JOBS_MAX
