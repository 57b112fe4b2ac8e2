"""Where the page listens, and what it costs before somebody comes."""

import asyncio
import socket

import pytest
from tests.loading import modules_after
from tests.unit.web.fake_node import make_page
from tests.unit.web.visits import request, status

from shoal.errors import ShoalError
from shoal.web import page as page_module
from shoal.web.page import LIMITS

SOON_S = 5.0


def test_a_page_that_is_off_listens_nowhere() -> None:
    async def story() -> str:
        page = make_page(where="off")
        await page.start()
        await page.stop()
        return page.address

    assert asyncio.run(story()) == ""


def test_the_next_free_port_is_taken_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(taken: int) -> tuple[str, bool]:
        monkeypatch.setattr(page_module, "USUAL", f"127.0.0.1:{taken}")
        page = make_page(where="")
        await page.start()
        await page.stop()
        return page.address, page.port_was_taken

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        address, was_taken = asyncio.run(story(port))

    assert was_taken
    assert address != f"127.0.0.1:{port}"


def test_a_port_that_was_asked_for_and_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"

        with pytest.raises(ShoalError, match="for the page") as caught:
            asyncio.run(make_page(where=where).start())

    assert "--no-web" in caught.value.hint


def test_the_oldest_stranger_makes_room_and_who_showed_the_token_stays() -> None:
    async def story() -> tuple[bytes, bytes, bytes, bytes]:
        page = make_page(limits=LIMITS._replace(strangers_max=2))
        await page.start()
        port = int(page.address.rpartition(":")[2])
        known = await asyncio.open_connection("127.0.0.1", port)
        known[1].write(request("/api/info", connection="keep-alive"))
        answer = await known[0].readuntil(b"\r\n\r\n")
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        async with asyncio.timeout(SOON_S):
            oldest = await _rest(idle[0][0])
            idle[2][1].write(request("/api/info"))
            last = await idle[2][0].readuntil(b"\r\n\r\n")
            await known[0].readexactly(2)  # Of the body: it is served on.
            await page.stop()
        rest = await _rest(idle[1][0])
        for _, writer in (known, *idle):
            writer.close()
        return answer, oldest, last, rest

    answer, oldest, last, rest = asyncio.run(story())

    assert status(answer) == 200
    assert oldest == b""
    assert status(last) == 200
    assert rest == b""


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_nothing_of_the_page_is_imported_before_somebody_comes() -> None:
    loaded = modules_after("import shoal.web.page, shoal.api.server.daemon")

    assert not {"h11", "uvicorn", "starlette", "prometheus_client"} & set(loaded)
    assert [m for m in loaded if m.startswith("shoal.web.")] == ["shoal.web.page"]
