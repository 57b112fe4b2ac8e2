"""Visitors of a page, over real sockets of loopback."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.unit.web.fake_node import TOKEN, make_page

from shoal.web.page import WebPage

T = TypeVar("T")
Visit = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[T]]
PLENTY_S = 20.0
SERVING = 1
"""The task of uvicorn, as long as a page is served."""


def visited(visit: Visit[T], page: WebPage | None = None) -> T:
    """Serve a page, let somebody visit it, and return what that came to."""

    async def story() -> T:
        served = page or make_page()
        await served.start()
        port = int(served.address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(PLENTY_S):
                return await visit(reader, writer)
        finally:
            writer.close()
            await served.stop()

    return asyncio.run(story())


def said(request: bytes, page: WebPage | None = None) -> bytes:
    """Send some bytes, and return all that is answered until the page hangs up."""

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        writer.write(request)
        return await reader.read()

    return visited(visit, page)


def request(
    target: str,
    method: str = "GET",
    body: bytes = b"",
    *,
    host: str = "127.0.0.1:7420",
    token: str | None = TOKEN,
    **headers: str,
) -> bytes:
    """Return the bytes of a request; a header `content_type` is content-type.

    It is the last of its connection, unless a header says otherwise.
    """
    headers.setdefault("connection", "close")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines.append(f"Content-Length: {len(body)}")
        headers.setdefault("content_type", "application/json")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


def status(answer: bytes) -> int:
    """Return the status of an answer."""
    return int(answer.split(b" ", 2)[1])


def head_of(answer: bytes) -> str:
    """Return the headers of an answer, in small letters."""
    return answer.partition(b"\r\n\r\n")[0].decode().lower()


def body_of(answer: bytes) -> bytes:
    """Return what an answer holds."""
    return answer.partition(b"\r\n\r\n")[2]


async def tasks_end(left: int = SERVING) -> None:
    """Wait until nothing runs but this task and `left` tasks of the server."""
    while len(asyncio.all_tasks()) > 1 + left:  # noqa: ASYNC110 - Nobody tells.
        await asyncio.sleep(0.001)
