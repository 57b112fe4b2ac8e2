# pyright: basic
# torch describes its types only in part.
"""Text that every machine has: the source of Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

import torch

BLOCK: Final = 4_096
KEPT_BACK: Final = 20
"""One block in this many is for validation."""


def library_text(bytes_max: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return training and validation bytes."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(library.glob("*.py")) + sorted(library.glob("*/*.py"))
    text = b"".join(path.read_bytes() for path in files)[:bytes_max]
    blocks = [text[at : at + BLOCK] for at in range(0, len(text) - BLOCK, BLOCK)]
    kept = b"".join(blocks[::KEPT_BACK])
    rest = b"".join(block for n, block in enumerate(blocks) if n % KEPT_BACK)
    return _tensor(rest), _tensor(kept)


def draw(
    source: torch.Tensor, rows: int, context: int, chance: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw input sequences, and targets shifted by one byte."""
    starts = torch.randint(len(source) - context - 1, (rows, 1), generator=chance)
    places = (starts + torch.arange(context + 1)).to(source.device)
    found = source[places]
    return found[:, :-1], found[:, 1:]


def _tensor(text: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
