"""Functions as interpreters get them: pickled, and sent once if used repeatedly.

The first call of a function carries its pickle. From the second call on (or the first
batched `map`) the function has a number: its code goes to the node once, and calls name
the number. Code of one client is bounded by `KEPT_BYTES_MAX`; past that, each call
carries its function again.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, cast, final

from shoal.client.code import initializers, local_modules
from shoal.client.code.initializers import Initialized
from shoal.client.code.local_modules import Carried, bundle_for, is_installed
from shoal.protocol import payloads

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_BYTES_MAX: Final = 32 << 20
"""Bytes of numbered functions per client; past it, calls carry their function."""

KNOWN_MAX: Final = 100_000
_PLAIN: Final = frozenset({"builtins", "math", "operator", "time"})
"""Modules whose functions need nothing: no time is spent on them."""


@final
class Functions:
    """Numbers functions, each pickled once, when it gets its number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._numbers = 0
        self._bytes = 0

    def number(
        self, function: Callable[..., Any], *, at_once: bool, given: object = None
    ) -> tuple[int, bytes | None]:
        """Return a function's number, and its code if that must be sent first.

        Number 0 means that the call must carry the function itself. That is the case
        on first use unless `at_once`, since most functions are called only once, and
        when the code would exceed `KEPT_BYTES_MAX`. `given` are arguments of a call:
        local modules of their classes travel with the function.
        """
        key = id(function)
        found = self._known.get(key)
        if found is not None and found[0]() is function and found[1]:
            return found[1], None
        with self._lock:
            seen = found is not None and found[0]() is function
            if not (at_once or seen):
                self._note(key, function, 0)
                return 0, None
            code = b"".join(pickled(function, given))
            if self._bytes + len(code) > KEPT_BYTES_MAX:
                return 0, None
            self._bytes += len(code)
            self._numbers += 1
            self._note(key, function, self._numbers)
            return self._numbers, code

    def _note(self, key: int, function: Callable[..., Any], number: int) -> None:
        try:
            reference = weakref.ref(function)
        except TypeError:
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = (reference, number)


def pickled(function: object, given: object = None) -> list[bytes | memoryview]:
    """Return a pickle in pieces, with the user's own modules that it needs."""
    return payloads.dumps(carried(function, given))


def carried(function: object, given: object = None) -> object:
    """Return what to pickle in place of a function: it, with local modules."""
    if isinstance(function, Initialized):
        payloads.cloudpickle().register_pickle_by_value(initializers)
        initializer = cast("Callable[..., object]", carried(function.initializer))
        inner = cast("Callable[..., Any]", carried(function.function, given))
        return Initialized(function.key, initializer, function.initargs, inner)
    if getattr(function, "__module__", None) in _PLAIN:
        return function
    send_along(function)
    bundle = bundle_for(function, given)
    if bundle is None:
        return function
    payloads.cloudpickle().register_pickle_by_value(local_modules)
    return Carried(function, bundle)


def send_along(function: object) -> None:
    """Have a function pickled by value unless its module is installed.

    Interpreters in the shoal have their own installed packages, but not the files in
    this program's folder.
    """
    name = getattr(function, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    file = getattr(module, "__file__", None)
    if module is None or name == "__main__" or not file or is_installed(file):
        return
    package = sys.modules.get(module.__name__.partition(".")[0], module)
    payloads.cloudpickle().register_pickle_by_value(package)
