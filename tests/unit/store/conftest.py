"""Where the journals of these tests are."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def path() -> Iterator[Path]:
    """Return a place for a journal, in memory if there is one: a sync costs nothing."""
    folder = IN_MEMORY if IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield Path(name) / "journal.db"
