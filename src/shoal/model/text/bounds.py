"""How large values may be, each limit with a name, and the bounded types of fields.

The bounds hold for all input from outside: decoding enforces them, so a machine
never meets an amount below 0 or a duration without end. Values made by ourselves are
not checked again. `protocol.limits` adds those of messages and frames.

Texts have a grammar besides their length, which `model.text.grammar` checks. No text
has a zero byte: it ends a name where a system call takes it. Ids have a small alphabet,
because they become the names of files and folders. Names have no character that moves
a cursor or turns the direction of writing. A `Text` is written for people, and its
grammar is that of `model.text.texts`: what does not belong there is replaced, and
nothing is refused.
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
MODULES_MAX: Final = 16
GPU_MODELS_MAX: Final = 32
PROFILES_MAX: Final = 16
ARGUMENTS_MAX: Final = 4_096
ENV_MAX: Final = 1_024
SECRETS_MAX: Final = 64
PARAMS_MAX: Final = 256
OUTPUTS_MAX: Final = 256
INPUTS_MAX: Final = 1_024
PACKAGES_MAX: Final = 256
LENT_MAX: Final = 64

Amount = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
Count = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
Milli = Annotated[int, Meta(ge=0, le=MILLI_MAX)]
GpuCount = Annotated[int, Meta(ge=0, le=DEVICES_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=DURATION_MAX_S)]

UNSEEN: Final = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
"""Characters that steer a terminal, end a line or turn the direction of writing."""

GRAMMAR: Final = "grammar"
"""What `Meta(extra=...)` calls the grammar of a text; see `model.text.grammar`."""

KEY: Final = "key"
"""An id that may become the name of a file: no slash, and no dot at its beginning."""

ID: Final = "id"
NAME: Final = "name"
BELOW: Final = "below"
"""A path below some folder: not absolute, and no part of it is `..`."""

ARGUMENT: Final = "argument"
ADDRESS: Final = "address"

Key = Annotated[str, Meta(max_length=ID_LENGTH_MAX, extra={GRAMMAR: KEY})]
IdText = Annotated[str, Meta(max_length=ID_LENGTH_MAX, extra={GRAMMAR: ID})]
OwnerText = Annotated[str, Meta(max_length=ID_LENGTH_MAX, extra={GRAMMAR: NAME})]
Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX, extra={GRAMMAR: NAME})]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
Value = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX, extra={GRAMMAR: ARGUMENT})]
PathText = Annotated[str, Meta(max_length=PATH_LENGTH_MAX, extra={GRAMMAR: NAME})]
BelowPath = Annotated[str, Meta(max_length=PATH_LENGTH_MAX, extra={GRAMMAR: BELOW})]
Argument = Annotated[
    str, Meta(max_length=ARGUMENT_LENGTH_MAX, extra={GRAMMAR: ARGUMENT})
]

Labels = Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=LABELS_MAX)]
Modules = Annotated[tuple[Name, ...], Meta(max_length=MODULES_MAX)]
Lent = Annotated[tuple[Name, ...], Meta(max_length=LENT_MAX)]
Arguments = Annotated[tuple[Argument, ...], Meta(max_length=ARGUMENTS_MAX)]
