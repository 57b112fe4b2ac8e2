"""How large values may be, each limit with a name, and the bounded types of fields.

The bounds hold for whatever comes from outside: decoding enforces them, so a machine
never meets an amount below 0 or a duration without end. Values made by ourselves are
not checked again. `protocol.limits` adds those of messages and frames.

Texts have a grammar besides their length. No text has a zero byte: it ends a name
where a system call takes it. Ids have a small alphabet, because they become the names
of files and folders. Names have no character that moves a cursor or turns the
direction of writing. A `Text` is written for people, and its grammar is that of
`model.texts`: what does not belong there is replaced, and nothing is refused.
"""

import re
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

END: Final = r"$(?!\n)"
"""The end of a pattern, in Python and in JSON Schema: no newline may follow."""

KEY_PATTERN: Final = rf"^(?!\.)[A-Za-z0-9._-]*{END}"
"""An id that may become the name of a file: no slash, and no dot at its beginning."""

ID_PATTERN: Final = rf"^(?!\.)[A-Za-z0-9._:/@+=-]*{END}"

UNSEEN: Final = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
"""Characters that steer a terminal, end a line or turn the direction of writing."""

NAME_PATTERN: Final = rf"^[^{UNSEEN}]*{END}"
PATH_PATTERN: Final = NAME_PATTERN
BELOW_PATTERN: Final = rf"^(?!/)(?!(?:[^\n]*/)?\.\.(?:/|{END}))[^{UNSEEN}]*{END}"
"""A path below some folder: not absolute, and no part of it is `..`."""

ARGUMENT_PATTERN: Final = rf"^[^\x00]*{END}"
ADDRESS_PATTERN: Final = rf"^[!-~]*{END}"

Key = Annotated[str, Meta(max_length=ID_LENGTH_MAX, pattern=KEY_PATTERN)]
IdText = Annotated[str, Meta(max_length=ID_LENGTH_MAX, pattern=ID_PATTERN)]
OwnerText = Annotated[str, Meta(max_length=ID_LENGTH_MAX, pattern=NAME_PATTERN)]
Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX, pattern=NAME_PATTERN)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
Value = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX, pattern=ARGUMENT_PATTERN)]
PathText = Annotated[str, Meta(max_length=PATH_LENGTH_MAX, pattern=PATH_PATTERN)]
BelowPath = Annotated[str, Meta(max_length=PATH_LENGTH_MAX, pattern=BELOW_PATTERN)]
Argument = Annotated[
    str, Meta(max_length=ARGUMENT_LENGTH_MAX, pattern=ARGUMENT_PATTERN)
]

Labels = Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=LABELS_MAX)]
Arguments = Annotated[tuple[Argument, ...], Meta(max_length=ARGUMENTS_MAX)]

_KEY: Final = re.compile(KEY_PATTERN)
_NAME: Final = re.compile(NAME_PATTERN)
_BELOW: Final = re.compile(BELOW_PATTERN)


def is_key(text: str) -> bool:
    """Whether a text can be the id of a job, a group, a task, a blob or a node."""
    return len(text) <= ID_LENGTH_MAX and _KEY.search(text) is not None


def is_name(text: str) -> bool:
    """Whether a text can be the name of something."""
    return len(text) <= NAME_LENGTH_MAX and _NAME.search(text) is not None


def is_below(path: str) -> bool:
    """Whether a text can be a path below some folder."""
    return len(path) <= PATH_LENGTH_MAX and _BELOW.search(path) is not None
