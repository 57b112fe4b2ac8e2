"""Whole shoals of real nodes, each a `shoal up` process, for tests that hurt them.

A shoal is a scheduler that lends nothing and workers that take no jobs, so that a
test can kill the one or the other. Homes are filled here instead of by `shoal join`,
which is tested elsewhere and takes seconds.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom

from tests.integration import forked_shoal
from tests.integration.forked_shoal import ForkedShoal

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client, connect
from shoal.drivers.supervisor import leftovers
from shoal.errors import ShoalError
from shoal.failpoints import VARIABLE
from shoal.model.ids import OwnerId
from shoal.model.job import PRIORITY_MAX
from shoal.net.identity.identity import Identity
from shoal.protocol.messages import Grant, Role
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.shoal_membership import ShoalMembership

READY_S = 60.0
"""A machine that runs eight other suites starts nothing quickly."""

STARTS_AT_ONCE = 8
DYING_S = 5.0
LOOK_S, LOOK_MAX_S = 0.02, 0.25
"""How often to look at first, and at last: a look is work for a node too."""

PORT = 4001
GPUS = ("--gpus", "0,1", "--models", "T4,T4", "--memories", "16000,16000")
NEVER_S = 4e9


def eventually(
    condition: Callable[[], bool],
    within_s: float = READY_S,
    what: str | Callable[[], object] = "",
) -> float:
    """Wait for a condition; return how long it took. `what` says what is awaited."""
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        if waited_s > within_s:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within_s} s: {told}")
        time.sleep(min(max(LOOK_S, waited_s / 20), LOOK_MAX_S))
    return time.monotonic() - began


def promised(attempt: Callable[[], float], within_s: float, tries: int = 4) -> None:
    """Check a promised time: of some tries one is quick enough, and no more are made.

    Other work on the machine delays everything; what may never happen is for `attempt`
    to check, each time.
    """
    taken: list[float] = []
    while min(taken, default=within_s) >= within_s:
        assert len(taken) < tries, f"never within {within_s} s: {taken}"
        taken.append(attempt())


def is_of(home: Home, pid: int) -> bool:
    """Whether the node of a home is this process, and ready."""
    try:
        said = json.loads(home.node_info.read_bytes())
    except (OSError, ValueError):
        return False
    return bool(said["pid"] == pid)


class LiveNode:
    """One home and, at times, the process of a node in it."""

    def __init__(self, path: Path, args: Sequence[str], prefix: Sequence[str]) -> None:
        """Run `shoal up` with `args`; `prefix` is a command that runs commands."""
        self.home = Home(path)
        self.home.prepare()
        self.identity = Identity.load_or_create(self.home.key)
        self.process: subprocess.Popen[bytes] | ForkedShoal | None = None
        self._args = args
        self._prefix = prefix

    @property
    def id(self) -> str:
        """The node's id."""
        return self.identity.node

    @property
    def mark(self) -> str:
        """What marks all processes that this node has started."""
        return leftovers.worker_mark(self.home.tasks)

    def start(self, failpoint: str = "") -> None:
        """Start the node, and wait for nothing."""
        kept = ("HOME", "PATH", "PYTHONPATH")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        env["SHOAL_HOME"] = str(self.home.path)
        if failpoint:
            env[VARIABLE] = failpoint
        up = ("up", "--no-sandbox", "-q", *self._args)
        if forked_shoal.can_fork(up, env, self._prefix):
            self.process = forked_shoal.start_node(up, env, self.home.log, self._prefix)
            return
        with self.home.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", "shoal.cli", *up],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
            )

    def ready(self) -> None:
        """Wait until the node answers; raise if it ended instead."""
        eventually(self.is_ready_or_dead, READY_S, self.log)
        assert self.alive, self.log()

    def is_ready_or_dead(self) -> bool:
        """Whether there is nothing to wait for any more."""
        assert self.process is not None
        return not self.alive or is_of(self.home, self.process.pid)

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the node, and to nothing that it started."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the node as a power cut would."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()

    def died_by_failpoint(self, within_s: float) -> bool:
        """Wait for the end of the node; return whether a failpoint killed it."""
        assert self.process is not None
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        assert code == -signal.SIGKILL, self.log()
        return True

    def client(self) -> Client:
        """Return a new connection."""
        return connect(home=self.home)

    def view(self) -> pb.Node:
        """Return what the node says of itself."""
        with self.client() as client:
            return client.info().node

    def views(self) -> dict[str, pb.Node]:
        """Return all that the node knows of nodes that are here."""
        with self.client() as client:
            found = client.nodes().nodes
        return {node.name.id: node for node in found if not node.away}

    def task_processes(self) -> list[leftovers.LeftoverProcess]:
        """Return the processes of tasks, in which supervisors do not count."""
        found = leftovers.marked(self.mark)
        return [process for process in found if _is_of_a_task(process.pid)]

    def log(self) -> str:
        """Return the last of what the node wrote."""
        text = self.home.log.read_text(encoding="utf-8", errors="replace")
        return f"{self.home.path.name}:\n{text[-2_000:]}"

    def story(self) -> str:
        """Return what it wrote last, and how it sees others, for a test that fails."""
        try:
            with self.client() as client:
                info, nodes = client.info(), client.nodes().nodes
        except ShoalError as error:
            return f"{self.log()}\n{error}"
        seen = {node.name.petname: node.path or "not linked" for node in nodes}
        return f"{self.log()}\nup {info.up_s:.0f} s, {info.network}\n{seen}"


def _is_of_a_task(pid: int) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return leftovers.ATTEMPT_VARIABLE.encode() in environ


class LiveShoal:
    """A scheduler and its workers. `close` ends them all."""

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        place: Callable[[int], tuple[str, Sequence[str]]] | None = None,
        scheduler_args: Sequence[str] = ("--no-worker",),
        more_args: Sequence[str] = ("--without", "p2p"),
        worker_roles: tuple[Role, ...] = ("worker",),
        owners: Sequence[str] = (),
    ) -> None:
        """Fill the homes; `place` gives the n-th node an address and a prefix.

        libp2p is left out unless a test wants it: it takes seconds to start. The
        workers are of these `owners`; without any, of the owner of the scheduler.
        """
        self.folder = folder
        place = place or _loopback()
        self.nodes = [
            LiveNode(
                folder / ("boss" if not n else f"w{n}"),
                [
                    *(scheduler_args if not n else GPUS),
                    *("--listen", f"{place(n)[0]}:{PORT}", "--port", "0"),
                    *more_args,
                ],
                place(n)[1],
            )
            for n in range(workers + 1)
        ]
        self.boss, *self.workers = self.nodes
        belongs = shoal_membership.found(self.boss.home, self.boss.identity, "reef")
        gate = f"/ip4/{place(0)[0]}/tcp/{PORT}/p2p/{self.boss.id}"
        for number, worker in enumerate(self.workers):
            owner = OwnerId(owners[number]) if owners else belongs.grant.owner
            granted = _granted(
                self.boss.home, belongs, worker, gate, worker_roles, owner
            )
            shoal_membership.save(worker.home, granted)

    def start(self) -> None:
        """Start all nodes, and wait until the scheduler knows every worker."""
        for first in range(0, len(self.nodes), STARTS_AT_ONCE):
            batch = self.nodes[first : first + STARTS_AT_ONCE]
            for node in batch:
                node.start()
            for node in batch:
                node.ready()
        if len(self.nodes) <= STARTS_AT_ONCE:
            self.meet()  # In large shoals a scheduler does not ask everybody.

    def meet(self, within_s: float = READY_S, boss: LiveNode | None = None) -> float:
        """Wait until a scheduler knows what every worker has; return how long."""
        ids = [worker.id for worker in self.workers]
        scheduler = boss or self.boss

        def all_known() -> bool:
            known = scheduler.views()
            return all(id_ in known and known[id_].worker for id_ in ids)

        return eventually(all_known, within_s, "all workers are known")

    def close(self) -> None:
        """End all nodes; nothing of them is left."""
        for node in self.nodes:
            if node.alive:
                node.signal(signal.SIGCONT)
                node.signal(signal.SIGKILL)
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            eventually(functools.partial(_all_gone, node.mark), 20.0)


def _all_gone(mark: str) -> bool:
    return not leftovers.marked(mark)


def _loopback() -> Callable[[int], tuple[str, Sequence[str]]]:
    """Give every node an address of its own, which no other test uses."""
    net = ".".join(str(SystemRandom().randrange(1, 255)) for _ in range(2))
    return lambda n: (f"127.{net}.{n + 1}", ())


def _granted(
    home: Home,
    founder: ShoalMembership,
    node: LiveNode,
    gate: str,
    roles: tuple[Role, ...],
    owner: OwnerId,
) -> ShoalMembership:
    root = Identity.load(home.root_key)
    grant = Grant(
        node=node.identity.node,
        shoal=founder.shoal,
        roles=roles,
        owner=owner,
        top_priority=PRIORITY_MAX,
        serial=int(time.time()),
        expires_wall_s=NEVER_S,
    )
    return ShoalMembership(
        shoal=founder.shoal,
        root=founder.root,
        grant=shoal_membership.issue(root, grant),
        gates=(gate,),
    )


@contextmanager
def live_shoal(shoal: LiveShoal) -> Iterator[LiveShoal]:
    """Start a shoal, and end it in any case."""
    try:
        shoal.start()
        yield shoal
    finally:
        shoal.close()


def tolerant(node: LiveNode, call: Callable[[], object]) -> bool:
    """Call a node that may die meanwhile; return whether it has answered.

    What a living node answers is never tolerated: a job that it does not know is lost.
    """
    try:
        call()
    except ShoalError as error:
        try:
            eventually(lambda: not node.alive, DYING_S)
        except AssertionError:
            raise AssertionError(f"{error!r}: {error}\n{node.log()}") from error
        return False
    return True
