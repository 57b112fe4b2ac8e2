"""Shorten names of GPU models: `NVIDIA A100-SXM4-80GB` becomes `A100`.

Jobs ask for the short name, so all boards of one model share it: form factor (SXM,
PCIe), memory and brand are dropped. Parts that denote another chip stay: Ti, SUPER, and
laptop variants, which are slower.
"""

from __future__ import annotations

import re
from typing import Final

from shoal.model.text.bounds import NAME_LENGTH_MAX

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
