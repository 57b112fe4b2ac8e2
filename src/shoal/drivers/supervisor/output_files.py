"""Keep the output of a task in files beside its work directory; for supervisors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.drivers.supervisor.redaction import Redacted

FILE_BYTES_MAX: Final = 64 << 20
"""Of longer output, the last part is kept: between this size and twice that."""


@final
class OutputFiles:
    """One output stream in a file, whose oldest part is dropped when it grows long.

    The task's secrets are replaced by stars, so that copies of the file are safe.
    """

    def __init__(self, path: str, secrets: Sequence[str] = ()) -> None:
        self._path = path
        self._fd = -1
        self._size = 0
        self._starred: Redacted | None = None
        if secrets:
            from shoal.drivers.supervisor.redaction import (  # noqa: PLC0415 - Few have secrets.
                Redacted,
                Redaction,
            )

            if redaction := Redaction(secrets):
                self._starred = Redacted(redaction)

    def write(self, data: bytes) -> None:
        """Append data; hold back an end that may begin a secret."""
        if self._starred is not None:
            _, data = self._starred.feed(0, data)
        self._append(data)

    def close(self) -> None:
        """Write the data held back, and close the file."""
        if self._starred is not None:
            self._append(self._starred.end()[1])
        self._close()

    def _append(self, data: bytes) -> None:
        """Write data; after a disk error, drop it and all that follows."""
        if not self._path or not data:
            return
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags | os.O_NOFOLLOW, 0o600)
            self._size += os.write(self._fd, data)
            if self._size >= FILE_BYTES_MAX:
                os.replace(self._path, self._path + ".1")  # noqa: PTH105
                self._close()
        except OSError:
            self._close()
            self._path = ""

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = -1, 0
