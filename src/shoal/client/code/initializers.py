"""What runs once in each interpreter before the first call of an executor.

The interpreters of a client are shared by its executors. So each executor has a key,
and an interpreter notes by that key whether the initializer has run there, or why it
failed. This module is sent along by value: a worker needs no shoal of its own.
"""

from __future__ import annotations

import concurrent.futures
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

NOTES: Final = "_shoal_initialized"


class Initialized:
    """A function that runs after the initializer of its executor."""

    def __init__(
        self,
        key: str,
        initializer: Callable[..., object],
        initargs: tuple[Any, ...],
        function: Callable[..., Any],
    ) -> None:
        """Call `function` once `initializer(*initargs)` has run for this key."""
        self.key = key
        self.initializer = initializer
        self.initargs = initargs
        self.function = function
        self.__name__ = getattr(function, "__name__", "call")

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the function; raise `BrokenExecutor` if the initializer failed here."""
        notes: dict[str, str] = sys.__dict__.setdefault(NOTES, {})
        if self.key not in notes:
            try:
                self.initializer(*self.initargs)
                notes[self.key] = ""
            except Exception as error:  # noqa: BLE001 - It is told.
                notes[self.key] = f"{type(error).__name__}: {error}"
        if why := notes[self.key]:
            raise concurrent.futures.BrokenExecutor(
                f"the initializer of this executor failed: {why}"
            )
        return self.function(*args, **kwargs)
