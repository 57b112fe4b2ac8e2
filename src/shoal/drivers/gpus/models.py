"""Names and sizes of GPUs as users write them, from what drivers report."""

from __future__ import annotations

import re
from typing import Final

from shoal.model.resources import GIB
from shoal.model.text.bounds import NAME_LENGTH_MAX

ADVERTISED_GIB: Final = (
    *(1, 2, 3, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96),
    *(128, 141, 144, 180, 192, 256, 288, 384, 512),
)
MISSING_SHARE_MAX: Final = 0.1
"""Largest share of advertised memory that the driver and ECC may withhold."""


def advertised_bytes(memory_bytes: int) -> int:
    """Return the advertised size of a GPU whose driver reports `memory_bytes`.

    An RTX 4090 reports 23.99 GiB and a T4 14.75 GiB, but users ask for 24GB or 16GB.
    """
    for gib in ADVERTISED_GIB:
        size = gib * GIB
        if memory_bytes <= size:
            near = memory_bytes >= (1 - MISSING_SHARE_MAX) * size
            return size if near else memory_bytes
    return memory_bytes


_BRANDS: Final = frozenset(
    {"NVIDIA", "AMD", "INTEL", "GEFORCE", "TESLA", "QUADRO", "GRAPHICS", "GPU", "(R)"}
    | {"RADEON", "INSTINCT", "CORPORATION"}
)
_NOISE: Final = re.compile(
    r"\d+GB|SXM\d*|PCIE|HBM\d\w*|NVL|WITH|MAX-Q|DESIGN|GENERATION|BLACKWELL|DEVICE"
    r"|WORKSTATION|SERVER|EDITION|\(.*\)",
    re.ASCII,
)
_PROFESSIONAL: Final = re.compile(r"RTX(A\d{4})")  # Users write A6000, not RTXA6000.
_SPLIT: Final = re.compile(r"[\s_/]+|-(?=SXM|PCIE|\d+GB|NVL|HBM)", re.ASCII)
_JOINED: Final = ("RTX", "GTX", "GT", "TITAN", "RX", "PRO", "ARC")
_STAYS: Final = ("TI", "SUPER", "LAPTOP", "MOBILE", "XT", "XTX", "GRE", "ADA")


def short_model(name: str) -> str:
    """Return the short name of a model, in capitals; empty if nothing is left.

    Jobs ask for the short name, so all boards of one model share it: form factor (SXM,
    PCIe), memory and brand are dropped. Parts that denote another chip stay: Ti, SUPER,
    and laptop variants, which are slower.

    >>> short_model("NVIDIA A100-SXM4-80GB")
    'A100'
    >>> short_model("NVIDIA GeForce RTX 4070 Ti SUPER")
    'RTX4070TISUPER'
    """
    words = [word for word in _SPLIT.split(name.upper().strip()) if word]
    kept = [w for w in words if w not in _BRANDS and not _NOISE.fullmatch(w)]
    text = ""
    for word in kept:
        clean = re.sub(r"[^A-Z0-9._+-]", "", word)
        glued = clean in _STAYS or text.endswith(_JOINED) or not text
        text += clean if glued else f"-{clean}"
    return _PROFESSIONAL.sub(r"\1", text.strip("-"))[:NAME_LENGTH_MAX]
