"""Nodes that know a gate's address at most, and must find each other."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from tests.integration.live_shoal import LiveNode, eventually

from shoal.api import shoal_pb2 as pb
from shoal.errors import ShoalError
from shoal.model.job import PRIORITY_MAX
from shoal.net.identity.identity import Identity
from shoal.protocol.messages import Grant, Role
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.shoal_membership import ShoalMembership

PORT = 4001
FOUND_S = 120.0
"""It takes seconds; but with ten times the load libp2p takes a minute to start."""

ALL: tuple[Role, ...] = ("scheduler", "worker", "gate", "admin")
ENDED = (pb.STATE_DONE, pb.STATE_FAILED, pb.STATE_CANCELLED, pb.STATE_UNKNOWN)


class Found:
    """A shoal: the node that made it, and members made with `join`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: list[LiveNode] = []
        self._founder: LiveNode | None = None
        self._gates: list[str] = []

    def found(
        self,
        name: str,
        address: str,
        *args: str,
        prefix: Sequence[str] = (),
        start: bool = True,
    ) -> LiveNode:
        """Start the node that makes the shoal, on an address of its own."""
        node = self._node(name, address, args, prefix)
        shoal_membership.found(node.home, node.identity, "reef")
        self._founder = node
        if start:
            self._start(node)
        self._gates = [f"/ip4/{address}/tcp/{PORT}/p2p/{node.id}"]
        return node

    def join(
        self,
        name: str,
        address: str,
        *args: str,
        prefix: Sequence[str] = (),
        gates: Sequence[LiveNode] = (),
        start: bool = True,
        fields: Mapping[str, object] | None = None,
    ) -> LiveNode:
        """Start a member that knows where the gates are, and nothing else.

        `fields` differ from the grant of any member.
        """
        node = self._node(name, address, args, prefix)
        known = [address for gate in gates for address in addresses(gate)]
        shoal_membership.save(node.home, self._membership(node, known, fields or {}))
        if start:
            self._start(node)
        return node

    def tell(self, node: LiveNode, gate: LiveNode) -> None:
        """Write down for a node that is not up where a gate is."""
        known = shoal_membership.load(node.home)
        assert known is not None
        gates = tuple(addresses(gate))
        shoal_membership.save(node.home, msgspec.structs.replace(known, gates=gates))

    def guest(self, name: str, prefix: Sequence[str] = ()) -> LiveNode:
        """Return a node that belongs to no shoal, and is not up."""
        node = LiveNode(self.folder / name, ["--port", "0"], prefix)
        self.nodes.append(node)
        return node

    def restart(self, node: LiveNode, failpoint: str = "") -> None:
        """Start a node that has ended."""
        node.start(failpoint)
        node.ready()

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.kill()

    def _node(
        self, name: str, address: str, args: Sequence[str], prefix: Sequence[str]
    ) -> LiveNode:
        where = ("--listen", f"{address}:{PORT}", "--port", "0")
        node = LiveNode(self.folder / name, [*where, *args], prefix)
        self.nodes.append(node)
        return node

    def _start(self, node: LiveNode) -> None:
        node.start()
        node.ready()

    def _membership(
        self, node: LiveNode, gates: Sequence[str], fields: Mapping[str, object]
    ) -> ShoalMembership:
        assert self._founder is not None
        founder = shoal_membership.load(self._founder.home)
        assert founder is not None
        values: dict[str, object] = {
            "node": node.identity.node,
            "shoal": founder.shoal,
            "roles": ALL,
            "owner": founder.grant.owner,
            "top_priority": PRIORITY_MAX,
            "serial": int(time.time()),
            "expires_wall_s": time.time() + 86_400.0,
            **fields,
        }
        signer = values.pop("signer", None) or Identity.load(
            self._founder.home.root_key
        )
        assert isinstance(signer, Identity)
        grant = shoal_membership.issue(signer, Grant(**values))  # type: ignore[arg-type]
        return ShoalMembership(
            shoal=founder.shoal,
            root=founder.root,
            grant=grant,
            gates=tuple(gates) or tuple(self._gates),
        )


@contextmanager
def shoal(folder: Path) -> Iterator[Found]:
    """Lend a shoal, and end its nodes in any case."""
    made = Found(folder)
    try:
        yield made
    finally:
        made.close()


def without(*ways: str) -> list[str]:
    """Return what keeps a node from using some ways to others."""
    return [arg for way in ways for arg in ("--without", way)]


def addresses(node: LiveNode) -> list[str]:
    """Return where a node can be reached, once libp2p is up there."""
    eventually(lambda: p2p_state(node) == "up", FOUND_S, node.story)
    with node.client() as client:
        return list(client.info().addresses)


def submit(node: LiveNode, command: str) -> str:
    """Hand in a job; return its id."""
    job = uuid.uuid4().hex[:8]
    spec = f'{{"command": ["sh", "-c", "{command}"]}}'
    with node.client() as client:
        client.submit(pb.SubmitRequest(job_id=job, json=spec))
    return job


def until(path: Path) -> str:
    """Return a command that ends when there is such a file: it outlives the rest."""
    return f"until test -e {path}; do sleep 0.1; done"


def job_of(node: LiveNode, job: str) -> pb.Job:
    """Return a job, with its one task."""
    with node.client() as client:
        return client.get(job, tasks_max=1)


def finished(node: LiveNode, job: str, within_s: float = FOUND_S) -> pb.Job:
    """Wait for the end of a job, and return it."""
    eventually(lambda: job_of(node, job).state in ENDED, within_s, node.story)
    return job_of(node, job)


def runs(node: LiveNode, job: str, within_s: float = FOUND_S) -> str:
    """Wait until a job runs; return the id of the node that runs it."""

    def is_running() -> bool:
        seen = job_of(node, job)
        return seen.state == pb.STATE_RUNNING and bool(seen.tasks[0].nodes)

    eventually(is_running, within_s, node.story)
    return job_of(node, job).tasks[0].nodes[0].id


def linked(node: LiveNode) -> dict[str, str]:
    """Return by which path each linked peer is reached, without the node itself."""
    try:
        views = node.views()
    except ShoalError:
        return {}
    return {
        id_: view.path for id_, view in views.items() if view.path and not view.self
    }


def p2p_state(node: LiveNode) -> str:
    """Return how libp2p of a node is."""
    with node.client() as client:
        return client.info().network.p2p
