"""Announce this node on the local network, or look there for a shoal to join.

A node announces itself if it may admit others and listens beyond loopback. A node that
listens only on loopback and whose own shoal is empty may look for such a node.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.errors import NotAllowedError, NotFoundError, ShoalError, UsageError
from shoal.model.addresses import direct_ones
from shoal.model.text.shortages import in_gib
from shoal.net.identity.petname import petname
from shoal.net.joining.join_codes import is_code
from shoal.runtime.admission.join_on_lan import LanJoin
from shoal.runtime.discovery.finders import finding_of
from shoal.runtime.discovery.listen_addresses import only_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from zeroconf import Zeroconf

    from shoal.model.ids import NodeId, OwnerId
    from shoal.model.resources import Capacity
    from shoal.runtime.admission.admission_desk import AdmissionDesk
    from shoal.runtime.discovery.listen_addresses import NetworkOptions
    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.node import Node

OPEN_LAN: Final = (
    "--open-lan: any machine on this network can join as a worker, without approval"
)


@final
class LocalNetwork:
    """Announces this node, or looks for a shoal, in the background."""

    def __init__(
        self,
        node: Node,
        network: NodeNetwork,
        desk: AdmissionDesk,
        options: NetworkOptions,
        say: Callable[[str], None],
    ) -> None:
        self.join: LanJoin | None = None
        self._node = node
        self._network = network
        self._desk = desk
        self._options = options
        self._say = say
        self._task: asyncio.Task[None] | None = None
        self._announced: Zeroconf | None = None

    @property
    def has_joined(self) -> bool:
        """Whether this node must restart as a member of another shoal."""
        return self.join is not None and self.join.joined.is_set()

    def start(self, on_joined: Callable[[], None]) -> None:
        """Announce or look; call `on_joined` once another shoal is joined."""
        if not finding_of(self._options.without).mdns:
            return
        if not only_here(self._network.links.addresses):
            self._task = asyncio.create_task(self._announce())
        elif self._options.lan != "off" and self._is_free():
            self.join = LanJoin(
                self._node.home,
                self._node.identity,
                has=described(self._node.settings.capacity),
                is_free=self._is_free,
                say=self._say,
                consents=self._options.lan == "join",
            )
            self._task = asyncio.create_task(self._look(self.join, on_joined))

    async def close(self) -> None:
        """Stop announcing and looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._announced is not None:
            await asyncio.to_thread(self._announced.close)

    def decide(
        self, name: str, code: str, *, accepted: bool, owner: OwnerId | None
    ) -> NodeId:
        """Apply the user's decision about a newcomer, or about the shoal we asked.

        A newcomer is admitted only if `code` is the one its own screen shows. It
        gets `owner`; without one it becomes an owner of its own.
        """
        for one in self._desk.waiting:
            called = petname(one.node)
            if name in (one.node, called):
                if accepted and not is_code(code, one.code):
                    raise _wrong_code(called, code)
                self._desk.decide(one.node, accepted=accepted, owner=owner)
                return one.node
        join = self.join
        near = join.near if join is not None and join.state == "accepted" else None
        is_meant = near is not None and name in (near.node, near.petname)
        if join is not None and near is not None and is_meant and accepted:
            join.agree()
            return near.node
        raise NotFoundError(
            f"nobody called '{name}' waits for an answer",
            because="it asks no more, or has never asked",
            hint="`shoal accept` lists who asks",
        )

    async def _look(self, join: LanJoin, on_joined: Callable[[], None]) -> None:
        await join.run()
        if join.joined.is_set():
            on_joined()

    async def _announce(self) -> None:
        if not self._node.granting.is_allowed:
            return
        if self._options.open_lan:
            self._say(OPEN_LAN)
        try:
            from shoal.net.joining import lan_discovery  # noqa: PLC0415 - Slow to import.

            here = direct_ones(self._network.links.addresses)
            near = lan_discovery.Near(self._node.id, self._node.membership.shoal, here)
            self._announced = await asyncio.to_thread(lan_discovery.announce, near)
        except Exception as error:  # noqa: BLE001 - Zeroconf raises what it likes.
            self._say(f"not announced on the local network: {error}")

    def _is_free(self) -> bool:
        """Whether this node is alone, without jobs or open invitations."""
        belongs, scheduler = self._node.membership, self._node.scheduler
        is_alone = not belongs.gates and not self._network.links.peers
        has_jobs = scheduler is not None and bool(scheduler.book.jobs)
        return is_alone and not has_jobs and not self._desk.has_invited


def _wrong_code(name: str, code: str) -> ShoalError:
    if not code:
        return UsageError(
            f"{name} is not let in",
            because="nobody said which code its screen shows",
            hint=f"`shoal accept {name}` asks for the code",
        )
    return NotAllowedError(
        f"{name} is not let in",
        because="that is not the code of this request: somebody may be in between",
        hint="read the code on the screen of the machine itself, and type it again",
    )


def described(capacity: Capacity) -> str:
    """Describe what a machine would lend, for the person asked to admit it."""
    gpus: dict[str, int] = {}
    for device in capacity.devices:
        kind = f"{device.model or 'GPU'}:{in_gib(device.memory_bytes)}"
        gpus[kind] = gpus.get(kind, 0) + 1
    parts = [f"{count} x {kind}" for kind, count in gpus.items()]
    cpus, memory = capacity.cpu_milli / 1_000, in_gib(capacity.memory_bytes)
    return ", ".join([*parts, f"{cpus:g} CPU", memory])[:256]
