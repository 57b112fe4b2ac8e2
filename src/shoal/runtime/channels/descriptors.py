"""Reads and writes descriptors without blocking: pipes, sockets and terminals."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.channels.items import BODY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

UNWRITTEN_HIGH: Final = 256 << 10
"""Bytes that wait for a descriptor before those who write are slowed down."""

UNWRITTEN_LOW: Final = 64 << 10


@final
class DescriptorReader:
    """Reads a descriptor until its end, unless it is paused."""

    def __init__(
        self, fd: int, took: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        """Call `took` with what is read, and `ended` once, at the end."""
        self.is_over = False
        self.reads = 0  # how often something was read
        self.is_broken = False  # whether it ended with an error
        self._fd = fd
        self._took = took
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._paused = True
        os.set_blocking(fd, False)
        self.pause(paused=False)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read for now."""
        return self._paused and not self.is_over

    def pause(self, *, paused: bool) -> None:
        """Read nothing, or go on."""
        if self.is_over or paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._loop.remove_reader(self._fd)
        else:
            self._loop.add_reader(self._fd, self._read)

    def stop(self) -> None:
        """Read no more; the descriptor may be closed then."""
        self.pause(paused=True)
        self.is_over = True

    def _read(self) -> None:
        try:
            data = os.read(self._fd, BODY_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # A terminal whose programs have all ended says EIO.
            self.is_broken = True
            data = b""
        if data:
            self.reads += 1
            self._took(data)
            return
        self.stop()
        self._ended()


@final
class DescriptorWriter:
    """Writes a descriptor in order, and says when too much waits."""

    def __init__(
        self,
        fd: int,
        slowed: Callable[[bool], None],
        finish: Callable[[int], None],
    ) -> None:
        """Call `slowed` when too much waits, or no more; `finish` after the last."""
        self._fd = fd
        self._slowed = slowed
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[bytes] = deque()
        self._bytes = 0
        self._is_slow = False
        self._is_last = False  # whether nothing more will be written
        self.is_over = False
        os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        """Write data, after all earlier writes."""
        if self.is_over or self._is_last or not data:
            return
        if not self._unwritten:
            self._loop.add_writer(self._fd, self._flush)
        self._unwritten.append(data)
        self._bytes += len(data)
        self._tell()

    def end(self) -> None:
        """Finish once all is written."""
        if not self.is_over and not self._is_last:
            self._is_last = True
            if not self._unwritten:
                self._close()

    def stop(self) -> None:
        """Write no more; the descriptor may be closed then."""
        if not self.is_over:
            self.is_over = True
            self._loop.remove_writer(self._fd)
            self._unwritten.clear()
            self._bytes = 0

    def _flush(self) -> None:
        try:
            data = self._unwritten[0]
            sent = os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # Nobody reads any more: let the rest vanish, like a shell.
            self._close()
            self._tell()
            return
        self._bytes -= sent
        if sent < len(data):
            self._unwritten[0] = data[sent:]
        else:
            self._unwritten.popleft()
        self._tell()
        if not self._unwritten:
            self._loop.remove_writer(self._fd)
            if self._is_last:
                self._close()

    def _close(self) -> None:
        self.stop()
        self._finish(self._fd)

    def _tell(self) -> None:
        is_slow = self._bytes > (UNWRITTEN_LOW if self._is_slow else UNWRITTEN_HIGH)
        if is_slow != self._is_slow:
            self._is_slow = is_slow
            self._slowed(is_slow)
