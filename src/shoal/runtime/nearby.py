"""The local network of a node: it lets others in who are near, or looks for a shoal.

A node that may let others in, and that they can dial, says that it is there. One
whose shoal is only itself may look for such a node.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.errors import NotAllowedError, NotFoundError, ShoalError, UsageError
from shoal.model.addresses import direct_ones
from shoal.model.resources import in_gib
from shoal.net.requests import is_code
from shoal.runtime.lan_joining import LanJoin
from shoal.runtime.listening import only_here
from shoal.runtime.network import finding_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from zeroconf import Zeroconf

    from shoal.model.ids import NodeId, OwnerId
    from shoal.model.resources import Capacity
    from shoal.runtime.listening import NetworkOptions
    from shoal.runtime.network import Network
    from shoal.runtime.node import Node
    from shoal.runtime.reception import Reception

OPEN_LAN: Final = (
    "--open-lan: whoever is on this network can join as a worker, without being asked"
)


@final
class Nearby:
    """Announces this node, or looks for another, in the background."""

    def __init__(
        self,
        node: Node,
        network: Network,
        desk: Reception,
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
        """Whether this node must start again, as a member of another shoal."""
        return self.join is not None and self.join.joined.is_set()

    def start(self, on_joined: Callable[[], None]) -> None:
        """Begin; `on_joined` is called when this node belongs to another shoal."""
        porter = self._desk.porter
        porter.say, porter.open_lan = self._say, self._options.open_lan
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
        """Be silent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._announced is not None:
            await asyncio.to_thread(self._announced.close)

    def decide(
        self, name: str, code: str, *, accepted: bool, owner: OwnerId | None
    ) -> NodeId:
        """Do what the user says of who asks here, or of whom we asked.

        Only who shows this code on its own screen is let in. It has this owner;
        without one it is an owner of its own.
        """
        for one in self._desk.porter.waiting:
            if name in (one.node, one.petname):
                if accepted and not is_code(code, one.code):
                    raise _wrong_code(one.petname, code)
                self._desk.porter.decide(one.node, accepted=accepted, owner=owner)
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
        if not self._desk.granting.is_allowed:
            return
        if self._options.open_lan:
            self._say(OPEN_LAN)
        try:
            from shoal.net import lan  # noqa: PLC0415 - Slow to import.

            here = direct_ones(self._network.links.addresses)
            near = lan.Near(self._node.id, self._node.membership.shoal, here)
            self._announced = await asyncio.to_thread(lan.announce, near)
        except Exception as error:  # noqa: BLE001 - Zeroconf raises what it likes.
            self._say(f"not announced on the local network: {error}")

    def _is_free(self) -> bool:
        """Whether the shoal of this node is only itself, and has nothing to do."""
        belongs, scheduler = self._node.membership, self._node.scheduler
        is_alone = not belongs.gates and not self._network.links.connected
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
    """Return what a machine would lend, for whoever is asked to let it in."""
    gpus: dict[str, int] = {}
    for device in capacity.devices:
        kind = f"{device.model or 'GPU'}:{in_gib(device.memory_bytes)}"
        gpus[kind] = gpus.get(kind, 0) + 1
    parts = [f"{count} x {kind}" for kind, count in gpus.items()]
    cpus, memory = capacity.cpu_milli / 1_000, in_gib(capacity.memory_bytes)
    return ", ".join([*parts, f"{cpus:g} CPU", memory])[:256]
