"""All that one attempt writes to stdout, on disk until it has ended."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, final

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

STDOUT_BYTES_MAX: Final = 1 << 30


@final
class KeptStdout:
    """A file without a name, that is gone when this is closed."""

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None  # none once something is missing
        with suppress(OSError):
            self._descriptor, name = tempfile.mkstemp(dir=folder)
            os.unlink(name)  # noqa: PTH108 - as a text

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    @property
    def whole(self) -> bool:
        """Whether nothing is missing: the disk was not full, and it was not much."""
        return self._descriptor is not None

    def write(self, offset: int, data: bytes) -> None:
        """Keep a piece. When it cannot be kept, all the others are worth nothing."""
        if self._descriptor is None:
            return
        try:
            kept = offset + len(data) <= STDOUT_BYTES_MAX
            kept = kept and os.pwrite(self._descriptor, data, offset) == len(data)
        except OSError:
            kept = False
        if not kept:
            self._close()

    def rewound(self) -> int:
        """Return a descriptor of what is whole, to be read from the beginning."""
        assert self._descriptor is not None
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return self._descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
