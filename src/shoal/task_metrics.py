"""Report metrics from inside a task: `shoal.log`.

It has no dependencies and never fails the task: reports that cannot be sent are
dropped. SHOAL_SOCKET names the socket. Outside a task it does nothing, after one
warning. If SHOAL_SINKS names some, reports go there as well (`metric_sinks`).
"""

from __future__ import annotations

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
        data = json.dumps(report, default=_number).encode() + b"\n"
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


def _number(value: object) -> float:
    """Convert a number of a framework, such as a tensor, to a float."""
    return float(value)  # type: ignore[arg-type]  # Whatever has no __float__ raises.


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

    They come in a dict, by name, or both: `log({"loss": 0.3})`, `log(loss=0.3)`.
    `progress` is a fraction between 0 and 1. Every report is kept; a task that reports
    faster than its worker can take it, some thousand times a second, is slowed down.
    """
    report: dict[str, object] = {}
    metrics = {**(metrics or {}), **more}
    if metrics:
        report["metrics"] = metrics
        if os.environ.get(metric_sinks.VARIABLE):
            metric_sinks.of_this_process().log(metrics, step)
    if step is not None:
        report["step"] = step
    if progress is not None:
        report["progress"] = progress
    return _LINE.tell(report)
