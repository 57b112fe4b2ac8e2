"""A task with the internet reaches neither its lender nor the lender's networks.

The lender is a network namespace with a private address. The world beyond its router
is another one, which has public, private and special addresses alike, and answers on
all of them.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

import pytest
from tests.integration import namespaces
from tests.integration.namespaces import run

from shoal.drivers.sandbox import internet

pytestmark = pytest.mark.integration

if why := namespaces.missing():
    pytest.skip(why, allow_module_level=True)
if isinstance(found := internet.find(), str):
    pytest.skip(f"no internet for tasks here: {found}", allow_module_level=True)

PUBLIC, LENDER_PUBLIC = "198.51.100.7", "203.0.113.77"
FORBIDDEN = {
    "a machine of the local network": "10.77.0.9",
    "the router": "10.77.0.1",
    "another private network": "192.168.3.3",
    "a network behind the provider": "100.64.3.3",
    "the metadata of a cloud": "169.254.169.254",
    "the private address of the lender": "10.77.0.2",
    "the public address of the lender": LENDER_PUBLIC,
    "the loopback of the lender": "127.0.0.1",
    "the loopback of the lender by the way out": "192.0.2.2",
    "the loopback of the lender in IPv6": "::1",
    "a private network in IPv6": "fd77::9",
    "the lender in IPv6": "fd77::2",
}

SERVER = """
import socket, threading
def serve(family, address):
    server = socket.create_server((address, 8080), family=family)
    while True:
        taken, _ = server.accept()
        taken.sendall(b"hello"); taken.close()
def names():
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.bind(("0.0.0.0", 53))
    while True:
        asked, who = here.recvfrom(512)
        found = bytes([198, 51, 100, 7])
        answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + found
        flags = b"\\x81\\x80\\0\\1\\0\\1\\0\\0\\0\\0"
        end = asked.index(b"\\0", 12) + 5
        here.sendto(asked[:2] + flags + asked[12:end] + answer, who)
four = threading.Thread(target=serve, args=(socket.AF_INET, "0.0.0.0"))
four.start(); threading.Thread(target=names).start()
print("serves", flush=True)
serve(socket.AF_INET6, "::")
"""

CALLS = """
import json, socket, sys
told = {}
for what, address in json.loads(%r).items():
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as one:
        one.settimeout(0.7)
        try:
            one.connect((address, 8080)); told[what] = one.recv(9).decode()
        except OSError as error:
            told[what] = ""
try:
    told["name"] = socket.gethostbyname("a.public.host")
except OSError as error:
    told["name"] = str(error)
print(json.dumps(told))
"""


class Lender(NamedTuple):
    """How to run a command on the lender's machine."""

    prefix: tuple[str, ...]


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    mark = f"{SystemRandom().randrange(1 << 20):x}"
    here, world = f"shoal-l{mark}", f"shoal-w{mark}"
    etc = Path(f"/etc/netns/{here}")
    for space in (here, world):
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
    wires = ("type", "veth", "peer", "name", "up0", "netns", world)
    run("ip", "link", "add", "eth7", "netns", here, *wires)
    _address(here, "eth7", "10.77.0.2/24", f"{LENDER_PUBLIC}/32", "fd77::2/64")
    ours = [FORBIDDEN[n] for n in FORBIDDEN if "lender" not in n]
    bare = [f"{a}/32" for a in ours if ":" not in a and not a.startswith("10.77")]
    _address(world, "up0", "10.77.0.1/24", "10.77.0.9/24", "fd77::9/64")
    _address(world, "lo", f"{PUBLIC}/32", *bare)
    run("ip", "-n", here, "route", "add", "default", "via", "10.77.0.1")
    etc.mkdir(parents=True)
    (etc / "resolv.conf").write_text("nameserver 10.77.0.1\n")
    servers = [_serve(here), _serve(world)]
    try:
        yield Lender(("ip", "netns", "exec", here))
    finally:
        for server in servers:
            server.kill()
            server.communicate()
        for space in (here, world):
            run("ip", "netns", "del", space)
        (etc / "resolv.conf").unlink()
        etc.rmdir()


def _address(space: str, device: str, *addresses: str) -> None:
    run("ip", "-n", space, "link", "set", device, "up")
    for address in addresses:
        nodad = ("nodad",) if ":" in address else ()
        run("ip", "-n", space, "addr", "add", address, "dev", device, *nodad)


def _serve(space: str) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", space, sys.executable, "-c", SERVER]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"serves\n"
    return server


def reached(lender: Lender, folder: Path, reach: str) -> dict[str, str]:
    """Return what a task gets from each address that it calls."""
    program = CALLS % json.dumps({"public": PUBLIC, **FORBIDDEN})
    child = [sys.executable, "-m", "tests.integration.network_child"]
    done = subprocess.run(
        [*lender.prefix, *child, str(folder), reach, program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    told: dict[str, str] = json.loads(done.stdout)
    return told


def test_the_internet_is_all_that_a_task_with_the_internet_reaches(
    lender: Lender, tmp_path: Path
) -> None:
    told = reached(lender, tmp_path, "internet")

    assert told.pop("public") == "hello"
    assert told.pop("name") == PUBLIC  # by a resolver in the private network
    assert told == dict.fromkeys(FORBIDDEN, "")


def test_those_addresses_answer_a_task_with_all_of_the_network(
    lender: Lender, tmp_path: Path
) -> None:
    told = reached(lender, tmp_path, "all")

    assert told["name"] == PUBLIC
    silent = {"the loopback of the lender by the way out"}
    assert {what for what, said in told.items() if not said} == silent


def test_a_task_without_a_network_reaches_nothing(
    lender: Lender, tmp_path: Path
) -> None:
    told = reached(lender, tmp_path, "none")

    assert not any(said == "hello" for said in told.values())
