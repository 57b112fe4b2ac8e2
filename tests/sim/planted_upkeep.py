"""Bugs of environments, housekeeping and drains, for `planted`."""

from typing import Final

from shoal.core.environments.events import NeededEnvironment
from shoal.core.environments.shelf import EnvironmentShelf, Standing
from shoal.model.ids import Attempt, EnvironmentId, OwnerId

_want = EnvironmentShelf.want
_evict = EnvironmentShelf._evict


def environment_not_waited_for(
    self: EnvironmentShelf,
    attempt: Attempt,
    need: NeededEnvironment,
    owners: tuple[OwnerId, ...],
) -> Standing:
    """Start a task though another still makes its environment."""
    standing = _want(self, attempt, need, owners)
    return "ready" if standing == "wait" else standing


def environment_removed_in_use(self: EnvironmentShelf) -> list[EnvironmentId]:
    """Make room without asking who uses what."""
    self._users.clear()
    return _evict(self)


UPKEEP_BUGS: Final = (
    (
        "environment not waited for",
        EnvironmentShelf,
        "want",
        environment_not_waited_for,
    ),
    (
        "environment removed in use",
        EnvironmentShelf,
        "_evict",
        environment_removed_in_use,
    ),
)
