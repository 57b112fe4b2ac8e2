"""What runs once in each interpreter before the first call of an executor.

The interpreters of a client are shared by its executors. So each executor has a key,
and an interpreter notes by that key whether the initializer has run there, or why it
failed. This module is sent along by value: a worker needs no shoal of its own.

A function of a script arrives with variables of its own, and anew with each other
function of the same executor. So what the initializer left in its variables is noted,
too, and given to each that comes later: they read the same objects.
"""

from __future__ import annotations

import concurrent.futures
import functools
import sys
import types
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

NOTES: Final = "_shoal_initialized"
_CODE: Final = (types.FunctionType, types.ModuleType, type)


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
        self.is_ready = False  # whether its variables are as the initializer left them
        self.__name__ = getattr(function, "__name__", "call")
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the function; raise `BrokenExecutor` if the initializer failed here."""
        notes: dict[str, _Left] = sys.__dict__.setdefault(NOTES, {})
        left = notes.get(self.key)
        if left is None:
            left = notes[self.key] = _Left(self.initializer)
            left.run(self.initargs)
        if left.why:
            raise concurrent.futures.BrokenExecutor(
                f"the initializer of this executor failed: {left.why}"
            )
        if not self.is_ready:
            left.hand_on(_variables(self.initializer))
            self.is_ready = True
        return self.function(*args, **kwargs)


class _Left:
    """What an initializer left in its variables, and in classes among them."""

    def __init__(self, initializer: Callable[..., object]) -> None:
        self.why = ""  # it failed, if it did
        self._initializer = initializer
        self._variables = _variables(initializer)
        self._names: list[str] = []
        self._attributes: list[tuple[type, str, object]] = []

    def run(self, initargs: tuple[Any, ...]) -> None:
        """Run it; note what it set. What is no code may have changed inside."""
        known = dict(self._variables)
        classes = [each for each in known.values() if isinstance(each, type)]
        attributes = {each: dict(vars(each)) for each in classes}
        try:
            self._initializer(*initargs)
        except Exception as error:  # noqa: BLE001 - It is told.
            self.why = f"{type(error).__name__}: {error}"
            return
        self._names = [
            name
            for name, value in self._variables.items()
            if not name.startswith("__")
            and (value is not known.get(name, known) or not isinstance(value, _CODE))
        ]
        self._attributes = [
            (kind, name, value)
            for kind, before in attributes.items()
            for name, value in vars(kind).items()
            if value is not before.get(name, before)
        ]

    def hand_on(self, variables: dict[str, Any]) -> None:
        """Let a function that came later find the same as the first one."""
        if variables is self._variables:
            return
        there = self._variables
        variables.update({name: there[name] for name in self._names if name in there})
        for kind, name, value in self._attributes:  # Loading it again has reset it.
            setattr(kind, name, value)


def _variables(function: object) -> dict[str, Any]:
    """Return the global variables of a function; none if it is not made of Python."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    found: dict[str, Any] = getattr(function, "__globals__", {})
    return found
