"""Report metrics from inside a task: `shoal.log`.

It has no dependencies and never fails the task: reports that cannot be sent are
dropped, and values that are no numbers are left out, each with one warning.
SHOAL_SOCKET names the socket. Outside a task it does nothing, after one warning. If
SHOAL_SINKS names some, reports go there as well (`metric_sinks`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, cast, final

from shoal import metric_sinks

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_VARIABLE: Final = "SHOAL_SOCKET"
SEND_TIMEOUT_S: Final = 10.0
"""How long a busy worker is waited for before a report is dropped."""

NAMES_MAX: Final = 255
"""Metrics of one report; the step is one more (`protocol.limits.METRICS_MAX`)."""


@final
class _Line:
    """The connection of this process to its worker, opened on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = 0
        self._warned = False

    def tell(self, report: Mapping[str, object]) -> bool:
        """Send one report; return whether it was sent."""
        path = os.environ.get(SOCKET_VARIABLE)
        if not path:
            self._warn(f"not in a task: {SOCKET_VARIABLE} is not set")
            return False
        data = json.dumps(report).encode() + b"\n"
        with self._lock:
            try:
                self._connected(path).sendall(data)
            except OSError as error:
                self._drop()
                self._warn(f"the worker does not listen: {error}")
                return False
        return True

    def _connected(self, path: str) -> socket.socket:
        # A forked child must not write into its parent's lines.
        if self._socket is None or self._pid != os.getpid():
            self._drop()
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.settimeout(SEND_TIMEOUT_S)
            line.connect(path)
            line.shutdown(socket.SHUT_RD)
            self._socket, self._pid = line, os.getpid()
        return self._socket

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"shoal.log has no effect: {why}", stacklevel=4)


_TOLD: Final[set[str]] = set()
"""Names of which this process has warned."""


def _number(name: str, value: object) -> float | None:
    """Return a number, also one of a framework such as a tensor; None if it is none."""
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str | bytes):  # A number in words is a mistake.
        with contextlib.suppress(Exception):  # A framework raises what it likes.
            return float(value)  # type: ignore[arg-type]  # It may have no __float__.
    _warn_of(name, f"it is a {type(value).__name__}, and metrics are numbers")
    return None


def _numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics that a worker takes; warn once of each other name."""
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        number = _number(str(name), value)
        if number is None:
            continue
        if len(numbers) < NAMES_MAX:
            numbers[str(name)] = number
        else:
            _warn_of(str(name), f"a report has at most {NAMES_MAX} metrics")
    return numbers


def _warn_of(name: str, why: str) -> None:
    if name not in _TOLD and len(_TOLD) < NAMES_MAX:
        _TOLD.add(name)
        warnings.warn(f"shoal.log left out {name!r}: {why}", stacklevel=5)


def as_json(value: Any) -> Any:  # noqa: ANN401 - Whatever JSON can have.
    """Return a document without numbers that JSON does not have: they become null."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: as_json(each) for name, each in fields.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_LINE: Final = _Line()


def log(
    metrics: Mapping[str, float] | None = None,
    *,
    step: int | None = None,
    progress: float | None = None,
    **more: float,
) -> bool:
    """Report metrics of this task; return whether the report was sent.

    They come in a dict, by name, or both: `log({"loss": 0.3})`, `log(loss=0.3)`. What
    is no number is left out, with a warning.
    `progress` is a fraction between 0 and 1. Every report is kept; a task that reports
    faster than its worker can take it, some thousand times a second, is slowed down.
    """
    metrics = {**(metrics or {}), **more}
    if metrics and os.environ.get(metric_sinks.VARIABLE):
        metric_sinks.of_this_process().log(metrics, step)
    report: dict[str, object] = {}
    if numbers := _numbers(metrics):
        report["metrics"] = numbers
    for name, value in (("step", step), ("progress", progress)):
        if value is not None and (number := _number(name, value)) is not None:
            report[name] = number
    return _LINE.tell(report)
