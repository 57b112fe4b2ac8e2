"""The rules of a run, by which its aggregator decides."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shoal.train.diloco.messages import in_flight

UPDATES_KEPT: Final = 8
"""Outcomes that stay for workers who lag; who lags more takes all weights anew."""

REJOIN_S: Final = 5.0
"""After a fail-over workers that trained before are heard within this time: each says
once a second that it is there. Others start anew, and are not waited for longer."""

UNHURRIED: Final = 0.5
"""A checkpoint travels during this part of the time until the next."""


class RoundRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a run."""

    rounds: int
    inner_steps: int
    fragments: int = 1
    quorum: int = 1
    workers: int = 1  # as many as are expected to come
    gather_s: float = 20.0  # how long the first waits for the others
    silence_s: float = 20.0  # who is not heard for so long is gone
    timeout_s: float = 600.0  # for a sync whose duration cannot be foreseen
    slack: float = 3.0  # else: this many times as long as it should take
    timeout_least_s: float = 10.0
    keepers: int = 2
    checkpoint_every: int = 10  # rounds
    balance: bool = True
    validate_every: int = 1  # rounds
    reduce: Literal["auto", "central", "shared"] = "central"
    value_bytes: int = 4  # of a delta, before it is squeezed

    @property
    def syncs(self) -> int:
        """How many syncs there are in all."""
        return self.rounds * self.fragments

    @property
    def checkpoint_syncs(self) -> int:
        """How many syncs there are between two checkpoints."""
        return self.checkpoint_every * self.fragments

    @property
    def in_flight(self) -> int:
        """How many syncs a worker may be ahead of their outcome."""
        return in_flight(self.fragments)
