"""The shoal that is attacked: real nodes of two owners, and the attackers' identities.

`lender` made the shoal and lends this machine, in sandboxes, to everybody. `alice` only
submits. `mallory` is a member too, of an owner of her own: sometimes she runs an honest
node, sometimes she speaks to the others by hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from attacks.wire import Link
from shoal.drivers.supervisor import leftovers
from shoal.model.ids import NodeId, OwnerId
from shoal.net.identity.identity import Identity
from shoal.protocol.messages import Grant, Role
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.shoal_membership import ShoalMembership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PORT = 4001
API = 4002
METRICS = 4003
READY_S = 60.0
COMMAND_S = 60.0
MEMBER: tuple[Role, ...] = ("scheduler", "worker")


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Node:
    """One home, commands in it, and a node while it runs."""

    def __init__(self, folder: Path, name: str, host: str, args: Iterable[str]) -> None:
        self.name = name
        self.home = Home(folder / name)
        self.home.prepare()
        self.identity = Identity.load_or_create(self.home.key)
        self.host = host
        self.args = (
            *("--listen", f"{host}:{PORT}", "--port", "0", "--without", "p2p"),
            *args,
        )
        self.env = {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHOAL_HOME": str(self.home.path),
            "XDG_CONFIG_HOME": str(self.home.path / "config"),
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def id(self) -> NodeId:
        """The node's id."""
        return self.identity.node

    @property
    def address(self) -> str:
        """Where other nodes dial it."""
        return f"/ip4/{self.host}/tcp/{PORT}/p2p/{self.id}"

    def __call__(self, *args: str, typed: str = "", **env: str) -> Done:
        """Run a command of a user of this home to its end."""
        done = subprocess.run(
            ["shoal", *args],
            input=typed,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=self.env | env,
            timeout=COMMAND_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *args: str, typed: str = "") -> str:
        """Run a command that succeeds; return what it printed."""
        done = self(*args, typed=typed)
        assert done.code == 0, f"shoal {' '.join(args)}: {done}"
        return done.out

    def json(self, *args: str) -> dict[str, Any]:
        """Run a command with `--json`; return what it printed."""
        found: dict[str, Any] = json.loads(self.ok(args[0], "--json", *args[1:]))
        return found

    def submit(self, *args: str) -> str:
        """Submit a job; return its id."""
        return self.ok("submit", "-q", *args).strip()

    def up(self, *more: str) -> None:
        """Start the node and wait until it answers."""
        if self.process is not None:
            eventually(self._is_over, READY_S, "what it started ended with it")
        with self.home.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["shoal", "up", "-q", *self.args, *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
            )
        eventually(lambda: self._answers() or not self.alive, READY_S, self.log)
        assert self.alive, self.log()

    def _answers(self) -> bool:
        assert self.process is not None
        try:
            said = json.loads(self.home.node_info.read_bytes())
        except (OSError, ValueError):
            return False
        return bool(said["pid"] == self.process.pid)

    def _is_over(self) -> bool:
        """Whether nothing of an earlier life of this node is left."""
        return not leftovers.marked(leftovers.worker_mark(self.home.tasks))

    @property
    def alive(self) -> bool:
        """Whether the process of the node is there."""
        return self.process is not None and self.process.poll() is None

    def memory(self) -> int:
        """Return the bytes of memory that the node itself uses, as the kernel says."""
        assert self.process is not None
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def disk(self, part: str = "") -> int:
        """Return the bytes on disk below the home, or below a folder of it."""
        found = subprocess.run(
            ["du", "-s", "-B1", str(self.home.path / part)],
            capture_output=True,
            check=False,
        )
        return int(found.stdout.split()[0])

    def down(self) -> None:
        """End the node in good order, or else at once."""
        if self.process is None or not self.alive:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        """Return the last of what the node wrote."""
        text = self.home.log.read_text(encoding="utf-8", errors="replace")
        return f"{self.name}: {text[-2_000:]}"


class Reef:
    """All nodes, and what attackers look for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        net = f"127.{secrets.randbelow(250) + 2}.{secrets.randbelow(250) + 2}"
        self.net = net
        api = ("--api", f"{net}.1:{API}")
        self.lender = Node(folder, "lender", f"{net}.1", (*api, "--cache", "64MB"))
        self.alice = Node(folder, "alice", f"{net}.2", ("--no-worker",))
        self.mallory = Node(folder, "mallory", f"{net}.3", ("--no-worker",))
        self.nodes = [self.lender, self.alice, self.mallory]
        self.prize = secrets.token_hex(16)  # what nobody but its owner may ever see
        self._marks = 0
        founder = shoal_membership.found(self.lender.home, self.lender.identity, "reef")
        self.root = Identity.load(self.lender.home.root_key)
        self._founder = founder
        for node in (self.alice, self.mallory):
            grant = self.grant(node.identity, node.name)
            self.settle(node.home, grant)

    @property
    def owner(self) -> OwnerId:
        """The owner of the lender's machine."""
        return self._founder.grant.owner

    def settle(self, home: Home, grant: Grant) -> None:
        """Make a home that of a member."""
        founder = self._founder
        belongs = ShoalMembership(
            shoal="reef", root=founder.root, grant=grant, gates=(self.lender.address,)
        )
        shoal_membership.save(home, belongs)

    def grant(
        self,
        identity: Identity,
        owner: str,
        roles: tuple[Role, ...] = MEMBER,
        **more: Any,
    ) -> Grant:
        """Return a grant as the root of this shoal gives it."""
        given: dict[str, Any] = {
            "serial": int(time.time()),
            "expires_wall_s": time.time() + 86_400.0,
        }
        grant = Grant(
            node=identity.node,
            shoal="reef",
            roles=roles,
            owner=OwnerId(owner),
            **(given | more),
        )
        return shoal_membership.issue(self.root, grant)

    def start(self) -> None:
        """Start the nodes; the lender gets a secret and a job with output."""
        for node in self.nodes:
            node.up(*(self._shares() if node is self.lender else ()))
        self.lender.ok("secret", "set", "PRIZE", typed=self.prize)
        self.job = self.lender.submit("--", "echo", f"the prize is {self.prize}")
        self.lender("wait", self.job)
        eventually(lambda: self.knows_worker(self.alice), READY_S)
        eventually(lambda: self.knows_worker(self.mallory), READY_S)

    def _shares(self) -> list[str]:
        """Return what the lender shares: a folder with all, and one with nobody."""
        found: list[str] = []
        for name, how in (("lent", ":all"), ("private", "")):
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
            (folder / "prize").write_text(self.prize)
            found += ["--share", f"{folder}{how}"]
        return found

    def knows_worker(self, node: Node) -> bool:
        """Whether a scheduler knows the lender's machine."""
        return self.lender.id[-8:] in node("nodes", "--json").out

    def close(self) -> None:
        """End all nodes."""
        for node in reversed(self.nodes):
            node.down()

    def member(self, number: int, owner: str = "mallory", **more: Any) -> Member:
        """Return an identity with a grant, which no node uses."""
        home = Home(self.folder / f"member{number}")
        home.prepare()
        identity = Identity.load_or_create(home.key)
        grant = self.grant(identity, owner, **more)
        self.settle(home, grant)
        return Member(self, home, identity, grant)

    def mark(self) -> Path:
        """Return a file that is not there, outside of every sandbox."""
        self._marks += 1
        return self.folder / f"escaped-{self._marks}"

    def serves(self) -> str:
        """Return that the lender still runs jobs of others; raise if it does not."""
        assert self.lender.alive, f"the lender's node ended: {self.lender.log()}"
        done = self.alice("run", "--", "echo", "served")
        assert done.out.strip() == "served", done
        return "the node serves on"


class Member(NamedTuple):
    """A member that speaks by hand, or by commands at the API of others."""

    reef: Reef
    home: Home
    identity: Identity
    grant: Grant

    def link(self, node: Node, **more: Any) -> Link:
        """Open a link to a node, which must admit us."""
        made = Link(node.address, self.identity, self.grant, **more)
        made.hear("hello")
        return made

    def at_api(self, *args: str, typed: str = "") -> Done:
        """Run a command against the API of the lender, with our certificate."""
        done = subprocess.run(
            ["shoal", *args],
            input=typed,
            capture_output=True,
            text=True,
            env=self.reef.mallory.env
            | {
                "SHOAL_HOME": str(self.home.path),
                "SHOAL_NODE": f"{self.reef.lender.host}:{API}",
            },
            timeout=COMMAND_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def eventually(
    condition: Callable[[], bool],
    within_s: float,
    what: str | Callable[[], str] = "",
) -> bool:
    """Wait for a condition; raise `TimeoutError` if it does not come."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(what if isinstance(what, str) else what())
        time.sleep(0.02)
    return True


def soon(condition: Callable[[], bool], within_s: float) -> bool:
    """Say whether a condition comes true within this time."""
    with contextlib.suppress(TimeoutError):
        return eventually(condition, within_s)
    return False


def on_terminal(node: Node, *args: str) -> str:
    """Return what a command prints on a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ["shoal", *args],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=node.env | {"TERM": "xterm", "COLUMNS": "400", "NO_COLOR": "1"},
    )
    os.close(follower)
    seen = b""
    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        try:
            part = os.read(leader, 65_536)
        except OSError:
            break
        if not part:
            break
        seen += part
    process.kill()
    process.wait()
    os.close(leader)
    return seen.decode("utf-8", "replace")
