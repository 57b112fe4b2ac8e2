"""How large values may be, each limit with a name, and the bounded types of fields.

The bounds hold for whatever comes from outside: decoding enforces them, so a machine
never meets an amount below 0 or a duration without end. Values made by ourselves are
not checked again. `protocol.limits` adds those of messages and frames.
"""

import sys
from typing import Annotated, Final

from msgspec import Meta

AMOUNT_MAX: Final = (1 << 53) - 1
"""Bytes, thousandths, counts and sequence numbers: what a float64 holds exactly."""

INT64_MAX: Final = (1 << 63) - 1
FLOAT_MAX: Final = sys.float_info.max
DURATION_MAX_S: Final = 10 * 365 * 86_400
MILLI_MAX: Final = 1_000

ID_LENGTH_MAX: Final = 192
NAME_LENGTH_MAX: Final = 128
TEXT_LENGTH_MAX: Final = 8_192
PATH_LENGTH_MAX: Final = 4_096
ARGUMENT_LENGTH_MAX: Final = 65_536

DEVICES_MAX: Final = 64
LABELS_MAX: Final = 64
GPU_MODELS_MAX: Final = 32
PROFILES_MAX: Final = 16
ARGUMENTS_MAX: Final = 4_096
ENV_MAX: Final = 1_024
SECRETS_MAX: Final = 64
PARAMS_MAX: Final = 256
OUTPUTS_MAX: Final = 256

Amount = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
Count = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
Milli = Annotated[int, Meta(ge=0, le=MILLI_MAX)]
GpuCount = Annotated[int, Meta(ge=0, le=DEVICES_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=DURATION_MAX_S)]

IdText = Annotated[str, Meta(max_length=ID_LENGTH_MAX)]
Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
PathText = Annotated[str, Meta(max_length=PATH_LENGTH_MAX)]
Argument = Annotated[str, Meta(max_length=ARGUMENT_LENGTH_MAX)]

Labels = Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=LABELS_MAX)]
Arguments = Annotated[tuple[Argument, ...], Meta(max_length=ARGUMENTS_MAX)]
