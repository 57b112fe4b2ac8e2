"""Return unused memory of the C library to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Return free memory to the system.

    Training frees and takes gradients of all sizes, and holes between them stay with
    the process. Without glibc this does nothing.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
