"""A lane that must go: it ends when no call can be on its way to it any more."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.drivers import lane
from shoal.drivers.python import FOLDER, SOCKET, furnish, listen
from shoal.framing import LENGTH, framed
from shoal.protocol import call_items

pytestmark = pytest.mark.integration

WAIT_S = 20.0


def heard(line: socket.socket) -> tuple[int, int]:
    """Return the kind and the number of the next item."""
    size = LENGTH.unpack(line.recv(4, socket.MSG_WAITALL))[0]
    return call_items.head(line.recv(size, socket.MSG_WAITALL))


def say(line: socket.socket, item: bytes) -> None:
    line.sendall(framed(item))


def test_a_call_that_comes_too_late_is_given_back(tmp_path: Path) -> None:
    listener = listen(furnish(tmp_path))
    listener.setblocking(True)
    place = (FOLDER, f"{FOLDER}/{SOCKET}")
    argv = [sys.executable, "-c", lane.BOOT, *place, lane.PICKLED]
    with subprocess.Popen(argv, cwd=tmp_path) as process, listener:
        line, _ = listener.accept()
        line.settimeout(WAIT_S)
        assert heard(line)[0] == call_items.READY

        process.send_signal(signal.SIGTERM)
        going = heard(line)
        say(line, call_items.call_item(7, 0, b""))
        back = heard(line)
        say(line, call_items.item(call_items.LEAVE, 0))

        assert going == (call_items.GOING, call_items.NUMBER_MAX)
        assert back == (call_items.BACK, 7)
        assert process.wait(WAIT_S) == 0
        line.close()
