"""Facts and effects about environments: what is made, kept and removed."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.model.ids import Attempt, EnvironmentId, OwnerId
from shoal.protocol.messages import Outcome

# Events.


Kind = Literal["python", "setup", "cache"]


class NeededEnvironment(msgspec.Struct, frozen=True):
    """An environment that a task runs in."""

    id: EnvironmentId
    kind: Kind
    name: str = ""  # of a cache
    mark: str = ""  # by which schedulers know it (`model.caches`); empty: by none


class KeptEnvironment(msgspec.Struct, frozen=True):
    """An environment that is whole on this worker's disk."""

    id: EnvironmentId
    owners: tuple[OwnerId, ...]  # for whom it was made; nobody else uses it
    bytes: int = 0
    mark: str = ""


class EnvironmentsFound(msgspec.Struct, frozen=True):
    """What earlier lives of this worker have made, the least recently used first."""

    kept: tuple[KeptEnvironment, ...]


class EnvironmentMade(msgspec.Struct, frozen=True):
    """An environment is whole on disk, or nothing is left of it.

    `failure` says how its making ended, if it is not whole. It was `stopped` if whoever
    made it was told to stop: that says nothing of the environment.
    """

    attempt: Attempt
    id: EnvironmentId
    bytes: int = 0
    took_s: float = 0.0
    failure: Outcome | None = None
    stopped: bool = False


class EnvironmentGrown(msgspec.Struct, frozen=True):
    """A cache takes so much room, after a task that may write to it."""

    id: EnvironmentId
    bytes: int


EnvironmentEvent = EnvironmentsFound | EnvironmentMade | EnvironmentGrown

# Effects.


class RemoveEnvironment(msgspec.Struct, frozen=True):
    """Remove an environment from disk; nothing uses it."""

    id: EnvironmentId


EnvironmentEffect = RemoveEnvironment
