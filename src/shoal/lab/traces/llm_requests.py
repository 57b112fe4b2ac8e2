"""Read Azure's requests to language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.lab.traces.philly import seconds_of
from shoal.lab.traces.trace_files import rows
from shoal.lab.traces.values import TraceJob, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
PREFILL_TOKENS_PER_S: Final = 8_000.0
DECODE_TOKENS_PER_S: Final = 40.0
"""How fast one GPU serves, when requests are replayed as jobs: about a 13B model."""


def requests(path: Path) -> Iterator[TraceRequest]:
    """Read the requests."""
    for row in rows(path, COLUMNS):
        try:
            arrived_s = seconds_of(row.text("TIMESTAMP"))
        except ValueError as error:
            raise row.wrong(
                "TIMESTAMP", "a time such as 2023-11-16 18:17:03.97"
            ) from error
        yield TraceRequest(
            arrived_s=arrived_s,
            context_tokens=row.whole("ContextTokens", least=0),
            generated_tokens=row.whole("GeneratedTokens", least=0),
        )


def as_job(number: int, request: TraceRequest) -> TraceJob:
    """Return a request as a job of one GPU that takes as long as its tokens do."""
    run_s = (
        request.context_tokens / PREFILL_TOKENS_PER_S
        + request.generated_tokens / DECODE_TOKENS_PER_S
    )
    return TraceJob(
        id=str(number),
        submitted_s=request.arrived_s,
        run_s=run_s,
        requested_s=run_s,
        slots=1,
    )
