"""Amounts as people write them: sizes, CPUs, durations, and ranges of these.

A gigabyte is 2**30 bytes here, written `GB`, `GiB` or `G`: that is what the makers
of GPUs and memory mean by it, and it makes 24576 MB exactly 24 GB. A size without a
unit is in MB. A duration always has a unit, since some tools count in seconds and
others in minutes.

Each `format_` is exact: parsing what it returns gives the same amount.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from shoal.errors import UsageError
from shoal.model.spec.limits import AMOUNT_CHARS_MAX, CPU_MAX, SIZE_MAX_BYTES
from shoal.model.text.bounds import DURATION_MAX_S

if TYPE_CHECKING:
    from collections.abc import Callable

Amount = str | int | float
"""An amount as it stands in a document: `16GB`, `4`, `0.5`."""

SIZE_UNITS: Final = {
    "P": 1 << 50,
    "T": 1 << 40,
    "G": 1 << 30,
    "M": 1 << 20,
    "K": 1 << 10,
}
_DURATION_US: Final = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_SIZE: Final = re.compile(rf"({_NUMBER}) ?(?:([KMGTP])(?:I?B)?|(B))?", re.IGNORECASE)
_CPU: Final = re.compile(_NUMBER)
_WHOLE: Final = re.compile(r"[0-9]+")
_DURATION: Final = re.compile(
    " ?".join(rf"(?:({_NUMBER}) ?{unit})?" for unit in _DURATION_US)
)


def parse_size(amount: Amount) -> int:
    """Return a size in bytes: `16GB`, `24 GiB`, `1.5T`, `512B`; `8192` is in MB."""
    text = _text(amount)
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"'{text}' is not a size",
            because="a size is a number and a unit",
            hint="write it like 512MB, 16GB or 1.5TB",
        )
    number, prefix, bytes_only = found.groups()
    unit = 1 if bytes_only else SIZE_UNITS[(prefix or "M").upper()]
    size = int(Decimal(number) * unit)
    if size > SIZE_MAX_BYTES:
        raise UsageError(
            f"size {text} is too large",
            because=f"the most is {format_size(SIZE_MAX_BYTES)}",
            hint="check the unit",
        )
    return size


def has_size_unit(text: str) -> bool:
    """Tell a size with its unit from a plain number or another word."""
    return _SIZE.fullmatch(text) is not None and not text[-1].isdigit()


def format_size(size_bytes: int) -> str:
    """Write a size in the largest unit that divides it."""
    if size_bytes == 0:
        return "0"
    for prefix, unit in SIZE_UNITS.items():
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{prefix}B"
    return f"{size_bytes}B"


def parse_cpu(amount: Amount) -> int:
    """Return thousandths of a CPU: `4` is 4000, `0.5` is 500."""
    text = _text(amount)
    milli = Decimal(text) * 1_000 if _CPU.fullmatch(text) else None
    if milli is None or milli != int(milli):
        raise UsageError(
            f"'{text}' is not a number of CPUs",
            because="CPUs are counted in whole ones and thousandths",
            hint="write it like 4 or 0.5",
        )
    if milli > CPU_MAX * 1_000:
        raise UsageError(
            f"{text} CPUs are too many",
            because=f"one task may ask for {CPU_MAX}",
            hint="split the job into an array or a gang",
        )
    return int(milli)


def format_cpu(cpu_milli: int) -> str:
    """Write thousandths of a CPU as a number of CPUs."""
    whole, rest = divmod(cpu_milli, 1_000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")


def parse_whole(amount: Amount) -> int:
    """Return a whole number that is not negative."""
    text = _text(amount)
    if _WHOLE.fullmatch(text) is None:
        raise UsageError(
            f"'{text}' is not a whole number",
            because="only digits may stand here",
            hint="write it like 4",
        )
    return int(text)


def parse_duration(amount: Amount) -> float:
    """Return a duration in seconds, to the microsecond: `1h30m`, `90s`, `50ms`."""
    text = _text(amount)
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise UsageError(
            f"'{text}' is not a duration",
            because="it is numbers with units, the largest first: d h m s ms us",
            hint="write it like 90s, 1h30m or 50ms",
        )
    pairs = zip(found.groups(), _DURATION_US.values(), strict=True)
    total_us = sum(int(Decimal(number) * unit) for number, unit in pairs if number)
    if total_us > DURATION_MAX_S * 1_000_000:
        raise UsageError(
            f"duration {text} is too long",
            because=f"the most is {format_duration(DURATION_MAX_S)}",
            hint="check the unit",
        )
    return total_us / 1_000_000


def format_duration(duration_s: float) -> str:
    """Write a duration in the units people read, the largest first."""
    rest_us = round(duration_s * 1_000_000)
    parts: list[str] = []
    for name, unit in _DURATION_US.items():
        number, rest_us = divmod(rest_us, unit)
        if number:
            parts.append(f"{number}{name}")
    return "".join(parts) or "0s"


def parse_range(
    amount: Amount, parse: Callable[[Amount], int]
) -> tuple[int | None, int | None]:
    """Return the least and the most of `2..4`, `16GB..`, `..8`; `4` is both."""
    text = _text(amount)
    if ".." not in text:
        exact = parse(text)
        return exact, exact
    low, _, high = text.partition("..")
    if not low and not high:
        raise UsageError(
            f"'{text}' is not a range",
            because="it has neither a least nor a most",
            hint="write it like 2..4, 2.. or ..4",
        )
    least = parse(low.strip()) if low else None
    most = parse(high.strip()) if high else None
    if least is not None and most is not None and least > most:
        raise UsageError(
            f"range {text} is empty",
            because="its least is more than its most",
            hint=f"write {high.strip()}..{low.strip()}",
        )
    return least, most


def parse_least(amount: Amount, parse: Callable[[Amount], int]) -> int:
    """Return the amount of `4` or `4..`; refuse a most, which nothing would keep."""
    text = _text(amount)
    if ".." not in text:
        return parse(text)
    least, most = parse_range(text, parse)
    if least is None or most is not None:
        raise UsageError(
            f"'{text}' has a most",
            because="a task is given what it asks for at least, and no more",
            hint="write only the least, like 4 or 4..",
        )
    return least


def _text(amount: Amount) -> str:
    text = str(amount).strip()
    if len(text) > AMOUNT_CHARS_MAX:
        raise UsageError(
            f"'{text[:16]}...' is not an amount",
            because=f"it has {len(text)} characters, the most is {AMOUNT_CHARS_MAX}",
            hint="write it like 4, 16GB or 2h",
        )
    return text
