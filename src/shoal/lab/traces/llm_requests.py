"""Read requests to language models, one at a time: Azure's CSV and Mooncake's lines.

Azure tells when requests came and how long they were. Mooncake also tells which blocks
of 512 tokens their contexts consist of, so that one sees what a cache would find again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from shoal.errors import TraceError
from shoal.lab.traces.philly import seconds_of
from shoal.lab.traces.trace_files import heading, numbered_lines, rows
from shoal.lab.traces.values import TraceJob, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
PREFILL_TOKENS_PER_S: Final = 8_000.0
DECODE_TOKENS_PER_S: Final = 40.0
"""How fast one GPU serves, when requests are replayed as jobs: about a 13B model."""

TIMESTAMP_MS_MAX: Final = 1e15
TOKENS_MAX: Final = 1 << 30

Tokens = Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]


class MooncakeLine(msgspec.Struct, frozen=True):
    """One line of Mooncake; fields that it does not name are left out."""

    timestamp: Annotated[float, msgspec.Meta(ge=0, le=TIMESTAMP_MS_MAX)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: tuple[int, ...] = ()


_LINE: Final = msgspec.json.Decoder(MooncakeLine)


def is_mooncake(first: str) -> bool:
    """Whether a file that begins with this line has one request a line."""
    try:
        fields = msgspec.json.decode(first, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return False
    return {"timestamp", "input_length"} <= fields.keys()


def requests(path: Path) -> Iterator[TraceRequest]:
    """Read the requests of a file of either format, in its order."""
    if heading(path).startswith("{"):
        return mooncake_requests(path)
    return azure_requests(path)


def azure_requests(path: Path) -> Iterator[TraceRequest]:
    """Read requests from comma-separated values."""
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


def mooncake_requests(path: Path) -> Iterator[TraceRequest]:
    """Read requests from lines of JSON; times are in milliseconds there."""
    for number, text in numbered_lines(path):
        try:
            line = _LINE.decode(text)
        except msgspec.DecodeError as error:
            raise TraceError(
                "this line is no request",
                file=str(path),
                line=number,
                because=str(error),
                hint="a line has timestamp, input_length, output_length and hash_ids",
            ) from error
        if len(line.hash_ids) > line.input_length:
            raise TraceError(
                f"{len(line.hash_ids)} blocks for {line.input_length} tokens",
                file=str(path),
                line=number,
                because="a block has at least one token",
            )
        yield TraceRequest(
            arrived_s=line.timestamp / 1_000,
            context_tokens=line.input_length,
            generated_tokens=line.output_length,
            blocks=line.hash_ids,
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
