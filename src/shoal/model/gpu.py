"""The GPUs of a task in one word: `A100,H100:80GB..:2`.

    [vendor:][model[,model]:][memory[..memory]:][count[..count]]

The parts may stand in any order; each is known by its form. A bare size is a minimum
of memory for each GPU, a bare number is a count. `..48GB` is a maximum, `2..4` takes
up to four GPUs and is content with two, `2..` takes as many as are free. A count
below one, such as `0.5`, is a share of a single GPU; `0` is no GPU. A name of digits
alone would be a count, so write `RTX3090` and not `3090`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from shoal.errors import UsageError
from shoal.model.resources import WHOLE_GPU_MILLI, GpuNeed
from shoal.model.spec.limits import GPUS_MAX
from shoal.model.text.bounds import GPU_MODELS_MAX, NAME_LENGTH_MAX
from shoal.model.units import (
    format_cpu,
    format_size,
    has_size_unit,
    parse_range,
    parse_size,
    parse_whole,
)

if TYPE_CHECKING:
    from shoal.model.units import Amount

VENDORS: Final = (
    "amd",
    "apple",
    "google",
    "huawei",
    "intel",
    "nvidia",
    "qualcomm",
    "tenstorrent",
)
GPU_MEMORY_MIN_BYTES: Final = 1 << 20

_Kind = Literal["vendor", "models", "memory", "count"]

_NUMERIC: Final = re.compile(r"[0-9.]+")
_SHARE: Final = re.compile(r"0?\.([0-9]{1,3})")
# At least three digits, so that a mistyped size such as `24GX` is no model.
_MODEL: Final = re.compile(r"(?:[A-Z]|[0-9]{3,}(?![KMGTP]I?B)[A-Z])[A-Z0-9._+-]*")
_COUNT_TIMES_MODEL: Final = re.compile(r"[0-9]{1,2}X[A-Z].*")

_INSTEAD: Final[dict[_Kind, str]] = {
    "vendor": "name one vendor",
    "models": "write {0},{1} for any of these models",
    "memory": "write {0}..{1} for a range of sizes",
    "count": "write {0}..{1} for a range of counts",
}


def parse_gpu(amount: Amount) -> GpuNeed | None:
    """Return the need that `amount` describes; None is for no GPU at all."""
    text = str(amount).strip()
    parts = _parts(text)
    memory_min, memory_max = (
        _memory(parts.get("memory", "")) if "memory" in parts else (0, None)
    )
    count, count_max, milli = _count(parts.get("count", "1"))
    if count == 0:
        if len(parts) > 1:
            raise UsageError(
                f"'{text}' asks for no GPU and says which",
                because="its count is 0",
                hint="write 0 alone, or a count of at least 1",
            )
        return None
    return GpuNeed(
        count=count,
        count_max=count_max,
        milli=milli,
        memory_min_bytes=memory_min,
        memory_max_bytes=memory_max,
        models=_models(parts["models"]) if "models" in parts else (),
        vendor=parts.get("vendor", "").lower(),
    )


def format_gpu(need: GpuNeed | None) -> str:
    """Write a need in its one canonical form: vendor, models, memory, count."""
    if need is None:
        return "0"
    parts = [need.vendor, ",".join(need.models), _format_memory(need)]
    return ":".join([*(part for part in parts if part), _format_count(need)])


def _parts(text: str) -> dict[_Kind, str]:
    if not text:
        raise UsageError(
            "a GPU need is empty",
            because="it must say at least one of vendor, model, memory and count",
            hint="write it like 1, 24GB or A100:2; 0 is for no GPU",
        )
    parts: dict[_Kind, str] = {}
    for part in (piece.strip() for piece in text.split(":")):
        if not part:
            raise UsageError(
                f"GPU need '{text}' has an empty part",
                because="a colon must stand between two parts",
                hint="remove the extra colon",
            )
        kind = _kind(part)
        if kind in parts:
            first = parts[kind]
            noun = {"models": "models", "memory": "sizes"}.get(kind, f"{kind}s")
            raise UsageError(
                f"GPU need '{text}' has two {noun}",
                because=f"both {first} and {part} stand between colons",
                hint=_INSTEAD[kind].format(first, part),
            )
        parts[kind] = part
    return parts


def _kind(part: str) -> _Kind:
    if part.lower() in VENDORS:
        return "vendor"
    if _NUMERIC.fullmatch(part):
        return "count"
    if ".." in part or has_size_unit(part):
        return "memory"
    return "models"


def _memory(part: str) -> tuple[int, int | None]:
    for bound in part.split(".."):
        if bound and not has_size_unit(bound.strip()):
            raise UsageError(
                f"GPU memory '{part}' is not understood",
                because=f"'{bound.strip()}' is not a size with its unit",
                hint="write it like 24GB, 24GB..48GB, 24GB.. or ..48GB",
            )
    least, most = parse_range(part, parse_size)
    smallest = most if least is None else least
    if smallest is not None and smallest < GPU_MEMORY_MIN_BYTES:
        raise UsageError(
            f"GPU memory {part} is too small",
            because=f"no GPU has less than {format_size(GPU_MEMORY_MIN_BYTES)}",
            hint="check the unit: 8GB, not 8B",
        )
    return least or 0, most if ".." in part else None


def _count(part: str) -> tuple[int, int, int]:
    if ".." not in part and "." in part:
        return 1, 1, _share(part)
    least, most = parse_range(part, parse_whole)
    count = 1 if least is None else least
    count_max = GPUS_MAX if most is None else most
    if count == 0 < count_max or count_max < count:
        raise UsageError(
            f"GPU count {part} begins at 0",
            because="a task with or without a GPU is two different needs",
            hint="list both under any_of",
        )
    if count_max > GPUS_MAX:
        raise UsageError(
            f"{part} GPUs are too many",
            because=f"one task may ask for {GPUS_MAX}",
            hint=f"if {part} is a model, write its whole name, such as RTX{part}",
        )
    return count, count_max, WHOLE_GPU_MILLI


def _share(part: str) -> int:
    found = _SHARE.fullmatch(part)
    milli = int(found.group(1).ljust(3, "0")) if found else 0
    if milli == 0:
        raise UsageError(
            f"{part} GPUs cannot be given",
            because="only a share of a single GPU, in thousandths, may be a fraction",
            hint="write a whole number, or a share between 0 and 1 such as 0.5",
        )
    return milli


def _models(part: str) -> tuple[str, ...]:
    models = sorted({_model(name.strip().upper()) for name in part.split(",")})
    if len(models) > GPU_MODELS_MAX:
        raise UsageError(
            f"{len(models)} GPU models are too many",
            because=f"one need may list {GPU_MODELS_MAX}",
            hint="ask for memory instead, like 24GB",
        )
    return tuple(models)


def _model(name: str) -> str:
    if _COUNT_TIMES_MODEL.fullmatch(name):
        count, _, model = name.partition("X")
        raise UsageError(
            f"GPU need '{name}' is not understood",
            because="a count is a part of its own",
            hint=f"write {model}:{count}",
        )
    if _MODEL.fullmatch(name) is None or name.lower() in VENDORS or has_size_unit(name):
        raise UsageError(
            f"'{name}' is not a GPU model",
            because="a model is one word of letters, digits and hyphens",
            hint="write it like A100, RTX3090 or A100-SXM4; list models as A100,H100",
        )
    if len(name) > NAME_LENGTH_MAX:
        raise UsageError(
            f"GPU model '{name[:16]}...' is too long",
            because=f"it has {len(name)} characters, the most is {NAME_LENGTH_MAX}",
            hint="use the short name, like A100",
        )
    return name


def _format_memory(need: GpuNeed) -> str:
    least = format_size(need.memory_min_bytes) if need.memory_min_bytes else ""
    if need.memory_max_bytes is None:
        return least
    return f"{least}..{format_size(need.memory_max_bytes)}"


def _format_count(need: GpuNeed) -> str:
    if need.milli < WHOLE_GPU_MILLI:
        return format_cpu(need.milli)
    if need.count == need.count_max:
        return str(need.count)
    return f"{need.count}..{'' if need.count_max == GPUS_MAX else need.count_max}"
