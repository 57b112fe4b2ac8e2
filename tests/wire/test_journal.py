"""Journals of every release still read: the bytes of each kind of entry are kept.

`journal.txt` has a line of hex for each. Add lines; never change or remove one.
"""

from pathlib import Path
from typing import get_args

import pytest

from shoal.core.durability.journal import Entry, decode, encode

LINES = Path(__file__).with_name("journal.txt").read_text(encoding="ascii").split("\n")
KEPT = [line.split() for line in LINES if line]


@pytest.mark.parametrize(("kind", "data"), KEPT)
def test_an_entry_of_an_old_journal_still_reads(kind: str, data: str) -> None:
    entry = decode(bytes.fromhex(data))

    assert encode(entry)[0] == kind
    assert decode(encode(entry)[1]) == entry


def test_bytes_of_every_kind_of_entry_are_kept() -> None:
    tags = {kind.__struct_config__.tag for kind in get_args(Entry)}

    assert {kind for kind, _ in KEPT} == tags
