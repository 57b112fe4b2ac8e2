"""The policies that a scheduler places by: its own, and those that jobs name."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.errors import PolicyError
from shoal.policy.registry import Registry

if TYPE_CHECKING:
    from shoal.policy.placement import Policy


@final
class Policies:
    """Finds a job's policy; what cannot be found gives way to the default."""

    def __init__(self, registry: Registry | None = None, default: str = "") -> None:
        """Use `default` for jobs that name no policy; it must be there."""
        self._registry = registry or Registry({})
        self._default = self._registry.get(default)

    def get(self, name: str) -> Policy:
        """Return the policy of this name. After a restart it may be gone."""
        if not name or self.refusal(name):
            return self._default
        return self._registry.get(name)

    def refusal(self, name: str) -> str:
        """Say why there is no such policy, if so."""
        try:
            self._registry.get(name)
        except PolicyError as error:
            return str(error)
        return ""
