"""A node with a door for other machines, and clients on another machine.

The other machine is a network namespace, so nothing here is loopback.
"""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.integration.cli_home import CliHome, Done
from tests.integration.namespaces import internet, missing

from shoal.model.ids import OwnerId
from shoal.net.identity.identity import Identity
from shoal.protocol.messages import Grant, Role
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.grant_signing import ROLES
from shoal.runtime.membership.shoal_membership import ShoalMembership

SRC = Path(__file__).parents[2] / "src"
PORT = 50_051

CLIENT = """
    import json, sys
    import grpc, shoal_pb2, shoal_pb2_grpc
    address, trusted, key, certificate, token = sys.argv[1:]
    read = lambda path: open(path, "rb").read() if path else None
    options = [("grpc.enable_http_proxy", 0)]
    if trusted == "plain":
        channel = grpc.insecure_channel(address, options)
    else:
        shown = grpc.ssl_channel_credentials(*map(read, (trusted, key, certificate)))
        channel = grpc.secure_channel(address, shown, options)
    metadata = [("authorization", f"Bearer {token}")] if token else []
    stub = shoal_pb2_grpc.ShoalStub(channel)
    try:
        info = stub.Info(shoal_pb2.InfoRequest(), metadata=metadata, timeout=10)
        spec = json.dumps({"command": "true"})
        request = shoal_pb2.SubmitRequest(job_id=sys.argv[0][-9:-3], json=spec)
        job = stub.Submit(request, metadata=metadata, timeout=10).job
        ended = list(stub.Watch(shoal_pb2.WatchRequest(job=job.id), metadata=metadata))
        print(json.dumps({"pid": info.pid, "state": ended[-1].state}))
    except grpc.RpcError as error:
        print(json.dumps({"code": error.code().name, "details": error.details()}))
"""


class Far(NamedTuple):
    """A node with a door on one machine, and a folder for clients on another."""

    server: CliHome
    address: str
    there: tuple[str, ...]
    folder: Path

    def stranger(self, name: str) -> CliHome:
        """Return a home on the other machine that belongs to no shoal."""
        home = CliHome(self.folder / name, self.there)
        home.env["SHOAL_NODE"] = self.address
        return home

    def member(
        self,
        name: str,
        role: str,
        expires_s: float = 3_600.0,
        owner: str = "ann",
        **terms: int,
    ) -> CliHome:
        """Return a home on the other machine with a grant; no node runs in it."""
        home = self.stranger(name)
        own = Home(home.path)
        own.prepare()
        identity = Identity.load_or_create(own.key)
        grant = self.granted(identity, ROLES[role], expires_s, owner, **terms)
        known = shoal_membership.load(Home(self.server.path))
        assert known is not None
        belongs = ShoalMembership(shoal=known.shoal, root=known.root, grant=grant)
        shoal_membership.save(own, belongs)
        return home

    @property
    def owner(self) -> str:
        """The owner of the node with the door."""
        known = shoal_membership.load(Home(self.server.path))
        assert known is not None
        return known.grant.owner

    def chief(self) -> CliHome:
        """Return a home of an admin of the same owner as the node."""
        return self.member("chief", "admin", owner=self.owner)

    def granted(
        self,
        identity: Identity,
        roles: tuple[Role, ...],
        expires_s: float,
        owner: str = "ann",
        **terms: int,
    ) -> Grant:
        """Return a grant by the root of this shoal."""
        root = Identity.load(Home(self.server.path).root_key)
        grant = Grant(
            node=identity.node,
            shoal="home",
            roles=roles,
            owner=OwnerId(owner),
            expires_wall_s=time.time() + expires_s,
        )
        grant = msgspec.structs.replace(grant, **terms)
        return shoal_membership.issue(root, grant)

    def program(self, home: CliHome, script: str) -> subprocess.Popen[str]:
        """Start a program on the other machine that has a `client` of the node."""
        begin = f"""
            import json
            from shoal.api import shoal_pb2 as pb
            from shoal.api.client.client import connect
            from shoal.errors import ShoalError
            client = connect({self.address!r})
        """
        text = textwrap.dedent(begin) + textwrap.dedent(script)
        return subprocess.Popen(
            [*self.there, sys.executable, "-c", text],
            env=home.env,
            stdout=subprocess.PIPE,
            text=True,
        )

    def python(self, home: CliHome, script: str) -> list[str]:
        """Run such a program to its end; return the lines that it printed."""
        with self.program(home, script) as program:
            out, _ = program.communicate(timeout=60)
        assert program.returncode == 0
        return out.splitlines()

    @property
    def token(self) -> str:
        """The token of the node."""
        return (self.server.path / "api.token").read_text().strip()

    def generated(
        self,
        *,
        trusted: Path | str,
        key: Path | str = "",
        shown: Path | str = "",
        token: str = "",
    ) -> dict[str, Any]:
        """Run a client that protoc made, on the other machine."""
        script = self.folder / f"c{len(list(self.folder.iterdir())):05}.py"
        script.write_text(textwrap.dedent(CLIENT))
        args = (self.address, str(trusted), str(key), str(shown), token)
        done = subprocess.run(
            [*self.there, sys.executable, str(script), *args],
            env={"PYTHONPATH": str(self.folder / "stubs"), "GRPC_VERBOSITY": "NONE"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@contextmanager
def far_node(folder: Path) -> Iterator[Far]:
    """Lend a node with a door; the test is skipped where there are no namespaces."""
    if why := missing():
        pytest.skip(why)
    _compile(folder / "stubs")
    with internet() as net:
        public, here = net.machine("server", 10)
        _, there = net.machine("client", 11)
        server = CliHome(folder / "server", here)
        address = f"{public}:{PORT}"
        try:
            listen = ("--listen", f"{public}:4001", "--without", "p2p")
            server.up("--no-sandbox", *listen, "--api", address)
            yield Far(server, address, there, folder)
        finally:
            server.close()


def _compile(folder: Path) -> None:
    folder.mkdir()
    made = (f"--python_out={folder}", f"--grpc_python_out={folder}")
    command = [sys.executable, "-m", "grpc_tools.protoc", *made]
    proto = SRC / "shoal" / "api" / "shoal.proto"
    subprocess.run([*command, f"-I{proto.parent}", proto.name], check=True)


def refused(done: Done, words: str, code: int = 106) -> None:
    """See that a command was refused, with these words and what to do next."""
    assert done.code == code, done
    assert done.err.startswith("error: "), done
    assert "next:  " in done.err
    assert words in done.err
    assert "Traceback" not in done.err
