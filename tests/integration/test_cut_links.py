"""What a task reads and prints is whole, though its link breaks in the middle."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.integration.islands import islands
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually, live_shoal

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0
SHOAL = (sys.executable, "-m", "shoal.cli")
BYTES = 12_000_000  # more than all windows and pipes on the way hold


def test_input_and_output_are_whole_though_the_link_breaks(tmp_path: Path) -> None:
    data = os.urandom(BYTES // 2).hex().encode()

    with islands(left=1, right=1) as net:
        shoal = LiveShoal(tmp_path, 1, place=net.place)
        with live_shoal(shoal):
            env = {**os.environ, "SHOAL_HOME": str(shoal.boss.home.path)}
            command = [*SHOAL, "run", "-q", "--name", "echo", "--", "cat"]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
            ) as process:
                came: list[bytes] = []
                sending = threading.Thread(target=_send, args=(process, data))
                reading = threading.Thread(target=_read, args=(process, came))
                sending.start()
                reading.start()
                eventually(lambda: bool(came), PATIENCE_S)
                net.split()
                lost = shoal.workers[0].id
                eventually(lambda: not _is_linked(shoal.boss, lost), PATIENCE_S)
                before = sum(map(len, came))
                net.heal()
                sending.join()
                reading.join()
            logs = subprocess.run(
                [*SHOAL, "logs", "echo"], capture_output=True, env=env, check=True
            )

    assert process.returncode == 0
    assert 0 < before < len(data)  # The link broke in the middle.
    assert b"".join(came) == data
    assert logs.stdout == data
    assert logs.stderr == b""


def _is_linked(node: LiveNode, other: str) -> bool:
    view = node.views().get(other)
    return view is not None and bool(view.path)


def _send(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.close()


def _read(process: subprocess.Popen[bytes], came: list[bytes]) -> None:
    assert process.stdout is not None
    while data := os.read(process.stdout.fileno(), 65_536):
        came.append(data)
