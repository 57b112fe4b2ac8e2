"""Simulate the environments on one worker's disk: made in a while, kept, removed.

The twin of `runtime.environments`. What is whole survives crashes; what was being made
is gone. A share of makings fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, final

from shoal.core.environments.events import (
    EnvironmentMade,
    EnvironmentsFound,
    KeptEnvironment,
    RemoveEnvironment,
)
from shoal.core.events import MakeEnvironment
from shoal.model.ids import Attempt, EnvironmentId
from shoal.protocol.messages import Outcome
from shoal.sim.node.blobs import NodeCalls

MAKING_MAX_S: Final = 20.0
FAILED_SHARE: Final = 0.1
BYTES_MAX: Final = 40 << 30  # of one: two or three are all that a worker keeps
FAILED: Final = Outcome("not-started", reason="no such package")


@final
class SimEnvironments:
    """The environments of one worker, across restarts."""

    def __init__(self, node: NodeCalls, rng: Random) -> None:
        self.kept: dict[EnvironmentId, KeptEnvironment] = {}  # whole, on disk
        self.making: dict[Attempt, MakeEnvironment] = {}
        self.on_making: Callable[[MakeEnvironment], None] = _ignore
        self.on_removing: Callable[[RemoveEnvironment], None] = _ignore
        self._node = node
        self._rng = rng

    @property
    def performers(self) -> Mapping[type, Callable[[Any], None]]:
        """The performer of each effect."""
        return {MakeEnvironment: self._make, RemoveEnvironment: self._remove}

    def crashed(self) -> None:
        """Lose what was being made."""
        self.making.clear()

    def found(self) -> EnvironmentsFound:
        """Return what a new life is told."""
        return EnvironmentsFound(tuple(self.kept.values()))

    def stop(self, attempt: Attempt) -> None:
        """Stop making an environment, if this attempt does."""
        if (effect := self.making.pop(attempt, None)) is not None:
            stopped = EnvironmentMade(attempt, effect.need.id, stopped=True)
            self._node.later(0.0, lambda: self._node.feed(stopped))

    def _make(self, effect: MakeEnvironment) -> None:
        self.on_making(effect)
        self.making[effect.start.attempt] = effect
        is_cache = effect.need.kind == "cache"
        took_s = 0.0 if is_cache else self._rng.uniform(0.0, MAKING_MAX_S)
        fails = not is_cache and self._rng.random() < FAILED_SHARE
        size = 0 if is_cache else self._rng.randrange(BYTES_MAX)
        self._node.later(took_s, lambda: self._made(effect, size, took_s, fails=fails))

    def _made(
        self, effect: MakeEnvironment, size: int, took_s: float, *, fails: bool
    ) -> None:
        start, need = effect.start, effect.need
        if self.making.get(start.attempt) is not effect:
            return  # It was stopped.
        del self.making[start.attempt]
        if fails:
            made = EnvironmentMade(start.attempt, need.id, failure=FAILED)
        else:
            kept = KeptEnvironment(need.id, start.owners, size, need.mark)
            self.kept[need.id] = kept
            made = EnvironmentMade(start.attempt, need.id, size, took_s)
        self._node.feed(made)

    def _remove(self, effect: RemoveEnvironment) -> None:
        self.on_removing(effect)
        self.kept.pop(effect.id, None)


def _ignore(_: object) -> None:
    """Ignore it."""
