"""Runs a whole node in this process until it is told to end.

Theory of operation. `run_node` locks the home and runs one life of the node: compose
it, start its network, open the API, the metrics page and the web page, write
`node.json`, and report readiness. Then it waits for a signal, a client's `Shutdown` or
a failure of the node. On a request to stop, the node drains: tasks get the grace period
plus `TASKS_END_S`; a second request ends the wait. If the node has joined another shoal
meanwhile, it runs a second life as a member of that shoal.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec

from shoal.api import node_file
from shoal.api.client import credentials
from shoal.api.node_file import NodeFile
from shoal.api.server import tokens
from shoal.api.server.grpc_server import ApiAddress, ApiServer, Trust
from shoal.api.server.metrics_page import MetricsPage
from shoal.api.server.tokens import LiveToken
from shoal.api.service.service import ApiPlaces, Service
from shoal.api.shoal_pb2 import InfoRequest
from shoal.core.lending.events import EndNode
from shoal.errors import ShoalError, StoreError
from shoal.net.identity.petname import petname
from shoal.runtime.admission.admission_desk import AdmissionDesk
from shoal.runtime.admission.local_network import LocalNetwork
from shoal.runtime.allocation.allocations import Allocations
from shoal.runtime.discovery.listen_addresses import listen_address
from shoal.runtime.discovery.node_network import make_network
from shoal.runtime.membership.shoal_membership import write_private
from shoal.runtime.node_factory import compose

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator

    from shoal.api.shoal_pb2 import NodeInfo
    from shoal.net.base import Links
    from shoal.protocol.messages import Grant
    from shoal.runtime.home import Home
    from shoal.runtime.node import Node
    from shoal.runtime.node_factory import NodeOptions

    Ready = Callable[[NodeInfo, bool], None]
    """Called when the node is ready: its info, and whether the usual port was taken."""

    MakePage = Callable[[Node, Service, str], "Page"]
    """Makes the web page, which requires the node's token."""

TASKS_END_S: Final = 10.0
"""Time for tasks to end after the grace period, when the node stops."""

LOOK_S: Final = 0.05
ANYWHERE: Final = "0.0.0.0:0"


class Page(Protocol):
    """The web page, as far as this package knows it; `shoal.web` implements it."""

    address: str  # host and port; empty if it is off
    print: str  # fingerprint of the certificate, with TLS
    port_was_taken: bool

    async def start(self) -> None:
        """Start listening."""
        ...

    def renew(self, token: str) -> None:
        """Require a new token and drop all visitors."""
        ...

    async def stop(self) -> None:
        """Stop listening and drop all visitors."""
        ...


class PageHost(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks from a node to the process that runs it."""

    ready: Ready
    say: Callable[[str], None]  # shows the user a message
    make_page: MakePage


async def run_node(
    home: Home, options: NodeOptions, port: int | None, host: PageHost
) -> None:
    """Run a node until a signal or a client ends it; raise if the node fails.

    If it joins another shoal meanwhile, it restarts once as a member of that shoal.
    """
    home.prepare()
    with _sole_node_of(home):
        goes_on = await _live(home, options, port, host)
        if goes_on:
            options = _as_member(options)
            host = msgspec.structs.replace(host, ready=_was_ready)
            await _live(home, options, port, host)


async def _live(
    home: Home, options: NodeOptions, port: int | None, host: PageHost
) -> bool:
    with tempfile.TemporaryDirectory(prefix="shoal-") as scratch:
        return await _run(home, options, port, host, Path(scratch))


def _was_ready(info: NodeInfo, port_was_taken: bool) -> None:
    """Do nothing: the user already knows of the node and of its new shoal."""


def _as_member(options: NodeOptions) -> NodeOptions:
    """Return the options, changed to listen where other members can connect."""
    network = msgspec.structs.replace(
        options.network, lan="off", listen=options.network.listen or ANYWHERE
    )
    return msgspec.structs.replace(options, network=network, journal="")


async def _run(
    home: Home, options: NodeOptions, port: int | None, host: PageHost, scratch: Path
) -> bool:
    """Run one life of the node; return whether to start another."""
    node, driver = await compose(home, options, scratch, host.say)
    try:
        stop = StopRequest()
        desk = AdmissionDesk(node, node.neighbours.known, host.say)
        network = await make_network(node, options.network, desk)
        allocations = Allocations(node, desk, network)
        tls = _tls_now(node, options)
        await node.start(
            network.links,
            network.finder,
            {
                **desk.performers,
                **allocations.performers,
                **network.performers,
                EndNode: partial(_end, stop, host.say),
            },
            shows_grant=(network.show_grant, _renewed_tls(node, options, tls)),
        )
        near = LocalNetwork(node, network, desk, options.network, host.say)
        places, token = ApiPlaces(), LiveToken(tokens.load_or_make(home, node.id))
        service = Service(
            node, driver, network, desk, near, token, places, stop=stop.ask
        )
        service.allocations = allocations
        server = ApiServer(
            home, service, Trust(token.value, node.owner, node.verified, tls)
        )
        await _open(server, places, options, port)
        figures = MetricsPage(service.metrics_text, node, token.value)
        page = host.make_page(node, service, token.value)
        for each in (server, page, figures):
            token.on_renewed(each.renew)
        try:
            if options.metrics:
                await figures.start(*listen_address(options.metrics))
            await _open_page(page, places)
            gc.freeze()  # What is there now stays: it is never looked at for garbage.
            _write_down(home, node, server, network.links)
            host.ready(await service.on_info(InfoRequest()), server.port_was_taken)
            _tell_set_aside(node, host.say)
            network.begin()
            near.start(stop.ask)
            await _until_end(node, stop, desk, host.say)
        finally:
            home.node_info.unlink(missing_ok=True)
            await allocations.close()
            await near.close()
            await page.stop()
            await figures.stop()
            await server.stop()
    finally:
        await node.close()
    return near.has_joined


@contextlib.contextmanager
def _sole_node_of(home: Home) -> Generator[None]:
    """Lock the home against a second node, from start to end of this one."""
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
class StopRequest:
    """A request to stop, by a signal or a client; a second one is immediate."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self.grace_s = 0.0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Not by `nohup`.
            loop.add_signal_handler(signal.SIGHUP, self.ask)

    def ask(self, grace_s: float = 0.0) -> None:
        """Stop after `grace_s`; at once if called a second time."""
        if self.asked.is_set():
            self.hurry.set()
        self.grace_s = max(0.0, grace_s)
        self.asked.set()


def _tell_set_aside(node: Node, say: Callable[[str], None]) -> None:
    for job, reason in node.set_aside.items():
        say(f"job {job} is {reason}")


def _end(stop: StopRequest, say: Callable[[str], None], effect: EndNode) -> None:
    say(f"this node ends: {effect.reason}")
    stop.ask()


async def _until_end(
    node: Node, stop: StopRequest, desk: AdmissionDesk, say: Callable[[str], None]
) -> None:
    asked = asyncio.ensure_future(stop.asked.wait())
    try:
        ends: list[asyncio.Future[Any]] = [asked, node.ended]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
    if node.ended.done():
        node.ended.result()  # Raises the node's failure.
        return
    await node.hand_over()
    node.drain(stop.grace_s)
    if count := len(node.tasks):
        tasks = "1 task ends" if count == 1 else f"{count} tasks end"
        say(f"waiting until {tasks}; Ctrl-C again waits no longer")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(stop.grace_s + TASKS_END_S):
            while len(node.tasks) and not stop.hurry.is_set():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)  # There is no event for the last task.
    await desk.hand_over()


def _write_down(home: Home, node: Node, server: ApiServer, links: Links) -> None:
    found = NodeFile(
        pid=os.getpid(),
        node=node.id,
        petname=petname(node.id),
        shoal=node.membership.shoal,
        socket=str(server.socket),
        api=server.address,
        addresses=links.addresses,
    )
    write_private(home.node_info, node_file.encoded(found))


async def _open(
    server: ApiServer, places: ApiPlaces, options: NodeOptions, port: int | None
) -> None:
    """Open the API and record its addresses."""
    place = ApiAddress(*listen_address(options.api)) if options.api else None
    await server.start(port, place)
    places.api = server.address
    places.far = server.far_address


async def _open_page(page: Page, places: ApiPlaces) -> None:
    """Open the web page and record its address."""
    await page.start()
    places.web = page.address
    places.web_print = page.print
    places.web_port_was_taken = page.port_was_taken


def _tls_now(node: Node, options: NodeOptions) -> ssl.SSLContext:
    """Return a TLS context for the current grant; write the certificate files."""
    grant = node.membership.grant
    credentials.write_client_certificate(node.home, node.identity, grant)
    host = listen_address(options.api)[0] if options.api else ""
    return credentials.serving(node.home, node.identity, grant, host)


def _renewed_tls(
    node: Node, options: NodeOptions, tls: ssl.SSLContext
) -> Callable[[Grant], None]:
    """Return what presents a new grant to clients that connect from then on."""

    def show(_: Grant) -> None:
        with contextlib.suppress(ShoalError, OSError):  # Keep showing the old one.
            _tls_now(node, options)
            credentials.load(node.home, tls)

    return show
