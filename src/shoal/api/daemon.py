"""Runs a whole node in this process until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec

from shoal.api import credentials, tokens, whereabouts
from shoal.api.scraping import MetricsPage
from shoal.api.server import ApiServer, Place, Trust
from shoal.api.service import Service
from shoal.api.shoal_pb2 import InfoRequest
from shoal.api.whereabouts import Whereabouts
from shoal.errors import ShoalError, StoreError
from shoal.net.petname import petname
from shoal.runtime.listening import listen_address
from shoal.runtime.membership import write_private
from shoal.runtime.nearby import Nearby
from shoal.runtime.network import make_network
from shoal.runtime.reception import Reception
from shoal.runtime.serve import compose

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator

    from shoal.api.shoal_pb2 import NodeInfo
    from shoal.net.base import Links
    from shoal.runtime.home import Home
    from shoal.runtime.node import Node
    from shoal.runtime.serve import Options

    Ready = Callable[[NodeInfo, bool], None]
    """Is told what the node is, and whether the usual port was taken."""

    MakePage = Callable[[Node, Service, str], "Page"]
    """Makes the page for browsers, which asks for the token of the node."""

TASKS_END_S: Final = 10.0
"""How long tasks have to end, after the grace, when the node does."""

LOOK_S: Final = 0.05
ANYWHERE: Final = "0.0.0.0:0"


class Page(Protocol):
    """A page for browsers: what is on it, only rooms above this one know."""

    address: str  # host and port; nothing if it is off
    print: str  # of the certificate, if it is served by TLS
    port_was_taken: bool

    async def start(self) -> None:
        """Listen."""
        ...

    def renew(self, token: str) -> None:
        """Ask for this token from now on, and send away who showed another."""
        ...

    async def stop(self) -> None:
        """Listen no more, and send all visitors away."""
        ...


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What the process around a node does for it."""

    ready: Ready
    say: Callable[[str], None]  # to the user, whenever there is something to say
    make_page: MakePage


async def run_node(home: Home, options: Options, port: int | None, host: Host) -> None:
    """Run a node until a signal or a client ends it; raise if it fails by itself.

    If it joins another shoal meanwhile, it ends and starts again as a member of that.
    """
    home.prepare()
    with _sole_node_of(home):
        goes_on = await _live(home, options, port, host)
        if goes_on:
            options = _as_member(options)
            host = msgspec.structs.replace(host, ready=_was_ready)
            await _live(home, options, port, host)


async def _live(home: Home, options: Options, port: int | None, host: Host) -> bool:
    with tempfile.TemporaryDirectory(prefix="shoal-") as scratch:
        return await _run(home, options, port, host, Path(scratch))


def _was_ready(info: NodeInfo, port_was_taken: bool) -> None:
    """Say nothing: the user was told, and of the new shoal too."""


def _as_member(options: Options) -> Options:
    """Return the same options, but listen where other members reach this node."""
    network = msgspec.structs.replace(
        options.network, lan="off", listen=options.network.listen or ANYWHERE
    )
    return msgspec.structs.replace(options, network=network, journal="")


async def _run(
    home: Home, options: Options, port: int | None, host: Host, scratch: Path
) -> bool:
    """Run one life of the node; return whether it shall have another."""
    node, driver = await compose(home, options, scratch)
    try:
        stop = Stop()
        desk = _desk_of(node, host.say)
        network = await make_network(node, options.network, desk)
        await node.start(network.links, network.finder)
        service = Service(node, driver, network, desk, stop=stop.ask)
        token = tokens.load_or_make(home, node.id)
        tls = _tls_of(node, options)
        server = ApiServer(home, service, Trust(token, node.owner, node.verified, tls))
        await _open(server, service, options, port)
        figures = MetricsPage(service.metrics_text, node)
        page = host.make_page(node, service, token)
        service.renew = _renewing(server, page, figures)
        near = service.near = Nearby(node, network, desk, options.network, host.say)
        try:
            if options.metrics:
                await figures.start(*listen_address(options.metrics), token)
            await _open_page(page, service)
            _write_down(home, node, server, network.links)
            host.ready(await service.on_info(InfoRequest()), server.port_was_taken)
            for job, reason in node.set_aside.items():
                host.say(f"job {job} is {reason}")
            network.begin()
            near.start(stop.ask)
            await _until_end(node, stop, host.say)
            await desk.standing_in.hand_over()
        finally:
            home.node_info.unlink(missing_ok=True)
            await near.close()
            await page.stop()
            await figures.stop()
            await server.stop()
    finally:
        await node.close()
    return near.has_joined


@contextlib.contextmanager
def _sole_node_of(home: Home) -> Generator[None]:
    """Keep others from starting a node in this home, while it is not ready too."""
    with (home.path / "lock").open("a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"another node has the home {home.path}",
                kind="in-use",
                because="it runs already, or starts or ends at this moment",
                hint="`shoal down` ends it; another SHOAL_HOME is another node",
            ) from None
        yield


@final
class Stop:
    """A wish to end, by a signal or a client; the second one waits for nothing."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self.grace_s = 0.0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Else by `nohup`.
            loop.add_signal_handler(signal.SIGHUP, self.ask)

    def ask(self, grace_s: float = 0.0) -> None:
        """End soon, or, if that was asked before, at once."""
        if self.asked.is_set():
            self.hurry.set()
        self.grace_s = max(0.0, grace_s)
        self.asked.set()


async def _until_end(node: Node, stop: Stop, say: Callable[[str], None]) -> None:
    asked = asyncio.ensure_future(stop.asked.wait())
    try:
        ends: list[asyncio.Future[Any]] = [asked, node.ended]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
    if node.ended.done():
        node.ended.result()  # Raises what ended it.
        return
    node.drain(stop.grace_s)
    if count := len(node.tasks):
        tasks = "1 task ends" if count == 1 else f"{count} tasks end"
        say(f"waiting until {tasks}; Ctrl-C again waits no longer")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(stop.grace_s + TASKS_END_S):
            while len(node.tasks) and not stop.hurry.is_set():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)  # Nobody tells when the last one is gone.


def _write_down(home: Home, node: Node, server: ApiServer, links: Links) -> None:
    found = Whereabouts(
        pid=os.getpid(),
        node=node.id,
        petname=petname(node.id),
        shoal=node.membership.shoal,
        socket=str(server.socket),
        api=server.address,
        addresses=links.addresses,
    )
    write_private(home.node_info, whereabouts.encoded(found))


def _desk_of(node: Node, say: Callable[[str], None]) -> Reception:
    """Return the desk of a node, which signs for its machine too."""
    node.audit.say = say
    desk = Reception(node.home, node.identity, node.membership, node.roster, node.audit)
    node.renewals.sign_by = desk.granting.renewed
    node.renewals.on_kept(desk.granting.keep)
    return desk


async def _open(
    server: ApiServer, service: Service, options: Options, port: int | None
) -> None:
    """Listen for clients, and let the service say where."""
    place = Place(*listen_address(options.api)) if options.api else None
    await server.start(port, place)
    service.api_address = server.address
    service.far_address = server.far_address


async def _open_page(page: Page, service: Service) -> None:
    """Let browsers in, and let the service say where."""
    await page.start()
    service.web_address = page.address
    service.web_print = page.print
    service.web_port_was_taken = page.port_was_taken


def _renewing(
    server: ApiServer, page: Page, figures: MetricsPage
) -> Callable[[str], None]:
    """Return what tells all doors of a new token."""

    def renew(token: str) -> None:
        server.renew(token)
        page.renew(token)
        figures.renew(token)

    return renew


def _tls_of(node: Node, options: Options) -> ssl.SSLContext:
    """Return how this node proves itself to clients, now and with later grants."""
    tls = _tls_now(node, options)
    node.renewals.on_kept(lambda _: _renew_tls(node, options, tls))
    return tls


def _tls_now(node: Node, options: Options) -> ssl.SSLContext:
    """Return how it does now; write the files for programs."""
    grant = node.membership.grant
    credentials.write_client_certificate(node.home, node.identity, grant)
    host = listen_address(options.api)[0] if options.api else ""
    return credentials.serving(node.home, node.identity, grant, host)


def _renew_tls(node: Node, options: Options, tls: ssl.SSLContext) -> None:
    """Show the new grant to clients that come from now on."""
    with contextlib.suppress(ShoalError, OSError):  # They see the old one a while.
        _tls_now(node, options)
        credentials.load(node.home, tls)
