"""The policy registry: shoal's policies by name, and users' by entry point."""

from __future__ import annotations

from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final, TypeGuard, final

from shoal.errors import PolicyError, UnknownPolicyError, did_you_mean
from shoal.policy.custom import AssignsTasks, Custom
from shoal.policy.interface import Policy
from shoal.policy.ranking.compact import CompactGangs
from shoal.policy.ranking.forage import LearnedForage
from shoal.policy.ranking.fragmentation import LearnedFgd
from shoal.policy.ranking.packing import GpuClustering, GpuPacking
from shoal.policy.ranking.rankings import (
    Balanced,
    BestFit,
    DotProduct,
    Nearest,
    Simple,
    Uniform,
)
from shoal.policy.ranking.sampling import CANDIDATES, Sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENTRY_POINTS: Final = "shoal.policies"
DEFAULT: Final = "compact"


def _sampled_forage() -> Sampled:
    """Forage among a few workers drawn at random: for pools too large to know."""
    return Sampled(LearnedForage(), CANDIDATES)


BUILT_IN: Final[Mapping[str, Callable[[], Policy]]] = {
    "balanced": Balanced,
    "best-fit": BestFit,
    "compact": CompactGangs,
    "dot-product": DotProduct,
    "fgd": LearnedFgd,
    "forage": LearnedForage,
    f"forage-{CANDIDATES}": _sampled_forage,
    "gpu-clustering": GpuClustering,
    "gpu-packing": GpuPacking,
    "nearest": Nearest,
    "random": Uniform,
    "simple": Simple,
}


def installed() -> dict[str, Callable[[], object]]:
    """Return a loader for each policy that an installed package offers."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return {point.name: partial(_load, point) for point in found}


@final
class Registry:
    """Policies by name, one of each, made when first asked for.

    Keep one registry as long as the scheduler: policies learn, and tables remember
    what they worked out for each. Names of shoal's own cannot be taken over.
    """

    def __init__(
        self, custom: Mapping[str, Callable[[], object]] | None = None
    ) -> None:
        self._given = custom
        self._made: dict[str, Policy] = {}

    @cached_property
    def _custom(self) -> Mapping[str, Callable[[], object]]:
        """Policies that are not shoal's; looking for them reads every package."""
        return installed() if self._given is None else self._given

    def names(self) -> list[str]:
        """Return the names of all policies, sorted."""
        return sorted({**BUILT_IN, **self._custom})

    def get(self, name: str) -> Policy:
        """Return the policy of this name; empty means the default.

        Raises `PolicyError` if there is none, or if it cannot be loaded.
        """
        name = name or DEFAULT
        if name not in self._made:
            self._made[name] = self.make(name)
        return self._made[name]

    def make(self, name: str) -> Policy:
        """Return a policy of this name that has seen nothing yet."""
        if name in BUILT_IN:
            return BUILT_IN[name]()
        if name not in self._custom:
            raise self._unknown(name)
        try:
            made = self._custom[name]()
        except Exception as error:
            raise PolicyError(
                f"policy '{name}' cannot be loaded",
                because=f"{type(error).__name__}: {error}",
                hint="import it in a Python shell to see where it fails",
            ) from error
        if not _assigns_tasks(made):
            raise PolicyError(
                f"policy '{name}' is no policy",
                because=f"{type(made).__name__} has no method assign(workers, task)",
                hint="`shoal policy test` checks all that a policy must do",
            )
        return Custom(name, made)

    def _unknown(self, name: str) -> UnknownPolicyError:
        return UnknownPolicyError(
            f"no policy '{name}'",
            because=f"there are {', '.join(self.names())}",
            hint=did_you_mean(name, self.names()) or "`shoal policy list` tells more",
        )


def _assigns_tasks(made: object) -> TypeGuard[AssignsTasks]:
    return callable(getattr(made, "assign", None))


def _load(point: EntryPoint) -> object:
    made: object = point.load()()
    return made
