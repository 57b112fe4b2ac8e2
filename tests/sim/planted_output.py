"""Bugs of tasks' output, for `planted`: names, methods and what replaces them."""

from typing import Any, Final

from shoal.core.dispatch.output_intake import OutputIntake
from shoal.core.events import Effect
from shoal.model.ids import NodeId
from shoal.protocol.messages import Output, OutputPlace

_take_output = OutputIntake.take


def end_before_its_output(
    self: OutputIntake, peer: NodeId, place: OutputPlace | None
) -> bool:
    """Take a report though output before it is missing."""
    return True


def gap_in_output_overlooked(
    self: OutputIntake, peer: NodeId, output: Output, now: float
) -> tuple[bool, list[Effect]]:
    """Go on after a gap."""
    worker = self._workers.get(peer)
    if worker is not None and output.place is not None:
        worker.taken = max(worker.taken, output.place.number)
    return _take_output(self, peer, output, now)


def output_taken_twice(
    self: OutputIntake, peer: NodeId, output: Output, now: float
) -> tuple[bool, list[Effect]]:
    """Take repeated output for new."""
    worker = self._workers.get(peer)
    if worker is not None and output.place is not None:
        worker.taken = min(worker.taken, output.place.number)
    return _take_output(self, peer, output, now)


OUTPUT_BUGS: Final[tuple[tuple[str, Any, str, Any], ...]] = (
    ("end before its output", OutputIntake, "has_all", end_before_its_output),
    ("gap in output overlooked", OutputIntake, "take", gap_in_output_overlooked),
    ("output taken twice", OutputIntake, "take", output_taken_twice),
)
