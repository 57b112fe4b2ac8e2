"""Makes the calls at the end of jobs: webhooks in threads, commands as processes.

A webhook is a POST of the report as JSON. No redirect is followed, and nothing but the
status of the answer is read. A command is run as the node's user, without a sandbox: it
is only taken from that user's own socket (`rights.check_on_end`). It gets the report on
its standard input, in the user's home; its output is discarded. Neither holds up the
node: there are a few threads of their own, and a limit of time for each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlsplit

import msgspec

from shoal.core.events import Event
from shoal.core.housekeeping.end_calls import CALLS_MAX
from shoal.core.housekeeping.events import CallEnd, EndCallEnded
from shoal.runtime.background_tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Callable

WEBHOOK_S: Final = 10.0
COMMAND_S: Final = 60.0
ACCEPTED: Final = range(200, 300)
TROUBLE_CHARS_MAX: Final = 200


@final
class EndCallers:
    """Performs `CallEnd`."""

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self._feed = feed
        self._threads = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="end-calls")
        self._calls = BackgroundTasks()

    @property
    def performers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What performs the effects."""
        return {CallEnd: self.start}

    def start(self, effect: CallEnd) -> None:
        """Make a call in the background; the machine is told how it went."""
        self._calls.start(self._call(effect))

    async def close(self) -> None:
        """Stop; what was not finished is made again at the next start."""
        await self._calls.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, effect: CallEnd) -> None:
        body = msgspec.json.encode(effect.report)
        trouble = ""
        try:
            if effect.on_end.webhook:
                loop = asyncio.get_running_loop()
                url, key = effect.on_end.webhook, effect.report.key
                await loop.run_in_executor(self._threads, post, url, body, key)
            if effect.on_end.command:
                await run(effect.on_end.command, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            trouble = str(error)[:TROUBLE_CHARS_MAX] or type(error).__name__
        self._feed(EndCallEnded(effect.report.job, trouble))


def post(url: str, body: bytes, key: str) -> None:
    """Post a report; raise `OSError` unless it was accepted. Blocks."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise OSError(f"{url} names no host")
    is_safe = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_safe else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=WEBHOOK_S)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    try:
        connection.request("POST", path, body, headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status not in ACCEPTED:
        raise OSError(f"the webhook answered {status}")


async def run(argv: tuple[str, ...], body: bytes) -> None:
    """Run a command; raise `OSError` unless it exits with 0 in time."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path.home(),
    )
    try:
        async with asyncio.timeout(COMMAND_S):
            await process.communicate(body)
    except TimeoutError:
        raise OSError(f"the command did not end within {COMMAND_S:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise OSError(f"the command exited with {process.returncode}")
