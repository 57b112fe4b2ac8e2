"""Decodes results and exceptions of calls from what an interpreter sent.

Unpickling can run arbitrary code. So pickles are read only from machines of the
caller's owner, or if the caller opts in; all other machines send plain values. The
caller's own node tells who sent a result: it knows by certificate, and does not rely
on what the worker claims.
"""

from __future__ import annotations

import builtins
import pickle
import struct
from typing import Any, Final, Literal, cast

from shoal.client.plain_results import loads as loads_plain
from shoal.errors import (
    CallStoppedError,
    ProtocolError,
    RemoteError,
    ResultRefusedError,
)
from shoal.protocol import payloads, plain_values

Results = Literal["auto", "pickle", "plain"]
"""Machines whose pickles are read: those of the same owner, all, or none."""

TEXT_MAX: Final = 20_000
_LENGTH: Final = struct.Struct("<H")
_OLD_PICKLE: Final = 0x80
_SIMPLE: Final = (str, int, float, bool, bytes, type(None))
_BUILTIN: Final = frozenset(
    {
        *("ArithmeticError", "AssertionError", "AttributeError", "BufferError"),
        *("BlockingIOError", "BrokenPipeError", "ChildProcessError", "EOFError"),
        *("ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError"),
        *("ConnectionResetError", "Exception", "FileExistsError", "FileNotFoundError"),
        *("FloatingPointError", "ImportError", "IndexError", "IndentationError"),
        *("InterruptedError", "IsADirectoryError", "KeyError", "LookupError"),
        *("MemoryError", "ModuleNotFoundError", "NameError", "NotADirectoryError"),
        *("NotImplementedError", "OSError", "OverflowError", "PermissionError"),
        *("ProcessLookupError", "RecursionError", "ReferenceError", "RuntimeError"),
        *("SyntaxError", "SystemError", "TimeoutError", "TypeError"),
        *("UnboundLocalError", "UnicodeError", "ValueError", "ZeroDivisionError"),
    }
)
"""Exceptions that are rebuilt by name; none of them ends a program."""


class RemoteTracebackError(Exception):
    """The remote traceback, set as the cause of the exception that is raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """Return the traceback as the remote interpreter printed it."""
        return f'\n"""\n{self.text}"""'


def reads_pickles(results: Results, *, own: bool) -> bool:
    """Return whether pickles are read from own, or from foreign, machines."""
    return results == "pickle" or (results == "auto" and own)


def value_of(data: bytes | bytearray, *, pickles: bool) -> Any:  # noqa: ANN401
    """Decode the result of a call; read a pickle only if `pickles` is true.

    Raises `ResultRefusedError`, `ProtocolError`, or anything that unpickling raises.
    """
    kind = data[0] if data else None
    if kind in (plain_values.PLAIN, plain_values.PLAIN_BESIDE):
        return loads_plain(data)
    why, place = _unplain(data) if kind == plain_values.NOT_PLAIN else ("", 0)
    if not pickles:
        raise _refused(why)
    return payloads.loads(memoryview(data)[place:] if place else data)


def exception_of(data: bytes, *, pickles: bool) -> BaseException:
    """Decode the exception that an interpreter reported; never raises."""
    try:
        if data and data[0] == _OLD_PICKLE:
            if not pickles:
                return _refused("an exception")
            text, packed = pickle.loads(data)  # noqa: S301 - Of the caller's own.
            return _rebuilt(text, packed, None)
        told = loads_plain(data)
        module, name, args, text, packed = told
        if not text:
            return _stopped()
        found = _by_name(module, name, args)
        return _rebuilt(_shown(text), packed if pickles else b"", found, name)
    except Exception as error:  # noqa: BLE001 - Any failure means bad input.
        return ProtocolError(
            "an interpreter reported an exception that cannot be read",
            because=f"{type(error).__name__}: {_shown(str(error))[:200]}",
        )


def _rebuilt(
    text: str, packed: bytes, found: BaseException | None, name: str = ""
) -> BaseException:
    if not text:
        return _stopped()
    error: object = found
    if packed:
        try:
            error = payloads.loads(packed)
        except Exception:  # noqa: BLE001 - Loading runs the user's code.
            error = found
    if not isinstance(error, BaseException):
        last = text.rstrip().rpartition("\n")[2]
        foreign = "it came from a machine of another owner, so only its text is read"
        error = RemoteError(
            last,
            because=foreign if name else "the exception itself could not be pickled",
            hint="its cause is the traceback of the other side",
        )
    error.__cause__ = RemoteTracebackError(text)
    return error


def _by_name(module: object, name: object, args: object) -> BaseException | None:
    """Rebuild a built-in exception; return None if it is not one."""
    if module != "builtins" or name not in _BUILTIN or type(args) is not tuple:
        return None
    given = cast("tuple[object, ...]", args)
    if not all(type(each) in _SIMPLE for each in given):
        return None
    shown = [_shown(each) if isinstance(each, str) else each for each in given]
    made: BaseException = getattr(builtins, str(name))(*shown)
    return made


def _unplain(data: bytes | bytearray) -> tuple[str, int]:
    """Return why a value is not plain, and where its pickle begins."""
    if len(data) < 1 + _LENGTH.size:
        raise ProtocolError("a result has no end")
    start = 1 + _LENGTH.size
    size = _LENGTH.unpack_from(data, 1)[0]
    text = bytes(data[start : start + size]).decode(errors="replace")
    return _shown(text)[:200], start + size


def _shown(text: object) -> str:
    """Return untrusted text, made safe for a terminal and cut to its end."""
    told = str(text)[-TEXT_MAX:]
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in told)


def _refused(why: str) -> ResultRefusedError:
    return ResultRefusedError(
        f"the result is not read: it holds {why}"
        if why
        else "the result is not read: it is a pickle",
        because="it comes from a machine of another owner, and to read a pickle "
        "is to run whatever code is in it",
        hint="return plain data: numbers, texts, bytes, lists, dicts, arrays of numpy; "
        'or say results="pickle" if you trust all owners of workers here',
    )


def _stopped() -> CallStoppedError:
    return CallStoppedError(
        "the call was stopped", because="somebody called stop() on its future"
    )
