"""Planted bugs of what measures the network."""

from typing import Final

from shoal.core.proximity.coordinates import Coordinates
from shoal.core.proximity.probing import ByteBudget


def probes_without_budget(self: ByteBudget, size: int, now: float) -> bool:
    """Let everybody have as many probes as it asks for."""
    del self, size, now
    return True


def lies_at_full_weight(self: Coordinates) -> float:
    """Follow each peer as far as it says."""
    del self
    return float("inf")


PROXIMITY_BUGS: Final = (
    ("probes without budget", ByteBudget, "has", probes_without_budget),
    ("lies at full weight", Coordinates, "_usual_us", lies_at_full_weight),
)
