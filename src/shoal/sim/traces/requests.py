"""Requests to language models, as Azure published them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.sim.traces.opening import rows
from shoal.sim.traces.philly import seconds_of
from shoal.sim.traces.values import Job, Request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
PREFILL_TOKENS_PER_S: Final = 8_000.0
DECODE_TOKENS_PER_S: Final = 40.0
"""How fast one GPU serves, when requests are replayed as jobs: about a 13B model."""


def requests(path: Path) -> Iterator[Request]:
    """Read the requests."""
    for row in rows(path, COLUMNS):
        try:
            arrived_s = seconds_of(row.text("TIMESTAMP"))
        except ValueError as error:
            raise row.wrong(
                "TIMESTAMP", "a time such as 2023-11-16 18:17:03.97"
            ) from error
        yield Request(
            arrived_s=arrived_s,
            context_tokens=row.whole("ContextTokens", least=0),
            generated_tokens=row.whole("GeneratedTokens", least=0),
        )


def as_job(number: int, request: Request) -> Job:
    """Return a request as a job of one GPU that takes as long as its tokens do."""
    run_s = (
        request.context_tokens / PREFILL_TOKENS_PER_S
        + request.generated_tokens / DECODE_TOKENS_PER_S
    )
    return Job(
        id=str(number),
        submitted_s=request.arrived_s,
        run_s=run_s,
        requested_s=run_s,
        slots=1,
    )
