"""A hostile stranger: no grant, no token, but a way to the ports of a node."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from attacks.reef import API, PORT
from attacks.verdict import Broken, attack, must
from attacks.wire import CutOff, Link, Said
from shoal.net.direct.frames import FrameKind, framed
from shoal.net.identity.certificates import contexts
from shoal.net.identity.identity import Identity
from shoal.protocol.admission_proofs import commitment
from shoal.protocol.messages import Grant
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership

if TYPE_CHECKING:
    from attacks.reef import Reef

MIB = 1 << 20
FAR_WEB, FAR_METRICS = 4_013, 4_014
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def somebody(reef: Reef, number: int) -> Identity:
    """Return a key that nobody has granted anything."""
    home = Home(reef.folder / f"stranger{number}")
    home.prepare()
    return Identity.load_or_create(home.key)


def turned_away(reef: Reef, identity: Identity, grant: Grant | None) -> str:
    """Try to be a member; return how that ended, or say that it worked."""
    try:
        with Link(reef.lender.address, identity, grant) as link:
            link.hear("hello", within_s=3.0)
            link.say({"type": "inquiry", "request": "x"})
            link.hear("inventory", within_s=2.0)
    except (CutOff, ConnectionError, ssl.SSLError) as error:
        return f"turned away: {str(error) or type(error).__name__}"
    raise Broken("it is treated as a member")


@attack("stranger", "a member is who the root has granted it to be")
def a_grant_that_one_signed_oneself(reef: Reef) -> str:
    me = somebody(reef, 1)
    unsigned = msgspec.structs.replace(reef.grant(me, "me"), signature=b"")
    return turned_away(reef, me, shoal_membership.issue(me, unsigned))


@attack("stranger", "a grant is of use to its own node only")
def a_grant_of_somebody_else(reef: Reef) -> str:
    return turned_away(reef, somebody(reef, 2), reef.member(401).grant)


@attack("stranger", "a grant ends when it says")
def a_grant_that_has_expired(reef: Reef) -> str:
    me = somebody(reef, 3)
    return turned_away(reef, me, reef.grant(me, "me", expires_wall_s=time.time() - 60))


@attack("stranger", "a grant is for one shoal")
def a_grant_of_another_shoal(reef: Reef) -> str:
    me, other = somebody(reef, 4), somebody(reef, 5)
    wrong = msgspec.structs.replace(reef.grant(me, "me"), shoal="other")
    first = turned_away(reef, me, shoal_membership.issue(reef.root, wrong))
    return f"{first}; {turned_away(reef, me, shoal_membership.issue(other, wrong))}"


@attack("stranger", "what a grant says cannot be changed")
def a_grant_that_was_improved(reef: Reef) -> str:
    me = reef.member(402)
    better = msgspec.structs.replace(
        me.grant, top_priority=100, roles=("scheduler", "worker", "gate", "admin")
    )
    return turned_away(reef, me.identity, better)


@attack("stranger", "an invitation cannot be guessed, and guessing is slow")
def guessing_invitations(reef: Reef) -> str:
    reef.lender.ok("invite", "-q")
    me = somebody(reef, 6)
    tried, began = 0, time.monotonic()
    while time.monotonic() < began + 3.0:
        try:
            with Link(reef.lender.address, me, None, greets=False) as link:
                link.say({"type": "join", "request": "j", "secret": os.urandom(16)})
                tried += 1
                heard = link.hear("welcome", "refusal", within_s=0.5)
                must(heard["type"] != "welcome", "a guess was right")
        except (CutOff, TimeoutError, OSError, ssl.SSLError):
            continue
    return f"{tried} guesses in 3 s, all refused; {reef.serves()}"


@attack("stranger", "bytes of strangers cost little and end the connection")
def garbage_at_every_port(reef: Reef) -> str:
    before = reef.lender.memory()
    info = json.loads(reef.lender.home.node_info.read_bytes())
    ports = {(reef.lender.host, PORT), (reef.lender.host, API)}
    for value in str(info).replace("'", " ").replace("/", " ").split():
        host, _, port = value.strip(",}]").rpartition(":")
        if host.startswith("127.") and port.isdigit():
            ports.add((host, int(port)))
    for place, number in sorted(ports):
        for _ in range(30):
            with (
                contextlib.suppress(OSError),
                socket.create_connection((place, number), 2) as one,
            ):
                one.sendall(os.urandom(20_000))
                one.settimeout(0.05)
                one.recv(1)
    grown = reef.lender.memory() - before
    must(grown < 64 * MIB, f"memory grew by {grown // MIB} MiB")
    return f"{len(ports)} ports, +{max(grown, 0) // MIB} MiB; {reef.serves()}"


@attack("stranger", "who crowds the door keeps no member out")
def hundreds_who_only_connect(reef: Reef) -> str:
    crowd = []
    for n in range(300):
        with contextlib.suppress(OSError):
            one = socket.socket()
            one.bind((f"127.0.1.{n % 3 + 1}", 0))
            one.settimeout(2)
            one.connect((reef.lender.host, PORT))
            crowd.append(one)
    member = reef.member(403)
    began = time.monotonic()
    try:
        with member.link(reef.lender) as link:
            link.say({"type": "inquiry", "request": "x"})
            link.hear("inventory", within_s=5.0)
    finally:
        for one in crowd:
            one.close()
    took = time.monotonic() - began
    must(took < 5.0, f"a member waited {took:.1f} s")
    return f"{len(crowd)} connections, a member waited {took:.2f} s"


@attack("stranger", "the API reads nothing large before it knows who asks")
def large_calls_without_a_token(reef: Reef) -> str:
    before = reef.lender.memory()
    peak = 0
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    body = bytes(16_384)
    head = _headers(b"/shoal.Shoal/Submit")

    def call() -> None:
        with (
            contextlib.suppress(OSError, ssl.SSLError),
            socket.create_connection((reef.lender.host, API), 5) as raw,
            context.wrap_socket(raw) as tls,
        ):
            tls.settimeout(5)
            tls.sendall(PREFACE + _frame(4, 0, 0, b""))
            tls.sendall(_frame(8, 0, 0, (1 << 30).to_bytes(4, "big")) + head)
            tls.sendall(_frame(0, 0, 1, b"\0" + (64 * MIB - 5).to_bytes(4, "big")))
            for _ in range(64 * MIB // len(body)):
                tls.sendall(_frame(0, 0, 1, body))

    threads = [threading.Thread(target=call, daemon=True) for _ in range(12)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 6.0
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        peak = max(peak, reef.lender.memory() - before)
        time.sleep(0.02)
    peak = max(peak, reef.lender.memory() - before)
    must(peak < 96 * MIB, f"memory grew by {peak // MIB} MiB")
    return f"+{max(peak, 0) // MIB} MiB; {reef.serves()}"


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return (
        len(body).to_bytes(3, "big")
        + bytes((kind, flags))
        + stream.to_bytes(4, "big")
        + body
    )


def _headers(path: bytes) -> bytes:
    """Return the frame that begins a call of gRPC, in literal headers."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":path", path),
        (b":authority", b"shoal"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    block = b"".join(
        b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
        for name, value in fields
    )
    return _frame(1, 4, 1, block)


@attack("stranger", "idle connections at the API keep no member out")
def hundreds_of_idle_connections_at_the_api(reef: Reef) -> str:
    crowd = []
    for _ in range(300):
        with contextlib.suppress(OSError):
            one = socket.create_connection((reef.lender.host, API), 1)
            crowd.append(one)
    member = reef.member(404)
    began = time.monotonic()
    try:
        done = member.at_api("nodes")
    finally:
        for one in crowd:
            one.close()
    took = time.monotonic() - began
    must(done.code == 0, f"a member was locked out: {done.err}")
    must(took < 10.0, f"a member waited {took:.1f} s")
    return f"{len(crowd)} connections; a member was served in {took:.1f} s"


@attack("stranger", "without a token or a grant the API answers nothing")
def calling_the_api_without_a_token(reef: Reef) -> str:
    home = reef.folder / "nobody"
    seen = []
    for token in ("", "wrong", "0" * 64):
        env = {
            "SHOAL_HOME": str(home),
            "SHOAL_TOKEN": token,
            "SHOAL_NODE": f"{reef.lender.host}:{API}",
        }
        for args in (("ps", "--all"), ("nodes",), ("submit", "--", "true")):
            done = reef.mallory(*args, **env)
            must(
                done.code != 0, f"{args[0]} with the token {token!r}: {done.out[:200]}"
            )
            seen.append(done.err.strip().splitlines()[0])
    return seen[0]


@attack("stranger", "a token goes to its node, and to nobody who holds its port")
def waiting_for_a_token_at_the_port_of_the_api(reef: Reef) -> str:
    victim = reef.folder / "victim"
    token = (reef.lender.home.path / "api.token").read_text().strip()
    home = Home(victim)
    home.prepare()
    heard = bytearray()
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        port = trap.getsockname()[1]

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = trap.accept()
                    one.settimeout(1.0)
                    with contextlib.suppress(OSError):
                        one.sendall(_frame(4, 0, 0, b""))
                        while data := one.recv(65_536):
                            heard.extend(data)
                    one.close()

        threading.Thread(target=listen, daemon=True).start()
        (victim / "api.token").write_text(token)
        (victim / "api.token").chmod(0o600)
        info = json.loads(reef.lender.home.node_info.read_bytes())
        text = json.dumps(info)
        for value in list(info.values()):
            if isinstance(value, str) and value.startswith("127.0.0.1:"):
                text = text.replace(value, f"127.0.0.1:{port}")
        text = text.replace(str(reef.lender.home.path), str(victim))
        (victim / "node.json").write_text(text)
        for extra in (
            {},
            {"SHOAL_NODE": f"127.0.0.1:{port}"},
            {"SHOAL_NODE": f"localhost:{port}"},
        ):
            env = {"SHOAL_HOME": str(victim), **extra}
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    ["shoal", "ps"],
                    env=reef.lender.env | env,
                    timeout=6,
                    capture_output=True,
                    check=False,
                )
        time.sleep(0.1)
    secret = token.rpartition(".")[2] or token
    must(secret.encode() not in bytes(heard), "the token came to a stranger")
    return f"{len(heard)} bytes came, no token among them"


@attack("stranger", "other users of the machine reach nothing of a node")
def another_user_of_the_same_machine(reef: Reef) -> str:
    if os.geteuid() != 0:
        return "not tried: only root can be somebody else"
    reef.folder.chmod(0o711)
    probe = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for root, folders, files in os.walk(sys.argv[1]):\n"
        "    for name in files:\n"
        "        try: open(os.path.join(root, name), 'rb').read(1)\n"
        "        except OSError: continue\n"
        "        print('read', os.path.join(root, name))\n"
        "for path in sys.argv[2:]:\n"
        "    one = socket.socket(socket.AF_UNIX)\n"
        "    try: one.connect(path)\n"
        "    except OSError: continue\n"
        "    print('connected', path)\n"
    )
    sockets = [str(path) for path in reef.lender.home.path.glob("**/*.sock")]
    sockets += [str(path) for path in reef.lender.home.path.glob("*.calls")]
    done = subprocess.run(
        ["python3", "-c", probe, str(reef.lender.home.path), *sockets],
        capture_output=True,
        text=True,
        check=False,
    )
    must(not done.stdout, done.stdout)
    return f"{len(sockets)} sockets and all files are closed to others"


@attack("stranger", "a folder in /tmp is used only if it is one's own")
def a_folder_in_tmp_that_somebody_else_has_made(reef: Reef) -> str:
    if os.geteuid() != 0:
        return "not tried: only root can be somebody else"
    long = reef.folder / ("long" * 20)
    trap = _trap(0)
    if trap is None:
        return "the folder of this user is in use already"
    node = type(reef.lender)(long, "n", f"{reef.net}.9", ("--no-web",))
    try:
        node.up()
        done = node("run", "--", "echo", "served")
        inside = list(trap.iterdir())
    except AssertionError as error:
        return f"refused: {str(error)[-100:]}"
    finally:
        node.down()
        with contextlib.suppress(OSError):
            trap.rmdir()
    must(not inside, f"sockets lie in a folder of another user: {inside}")
    return f"it was not used; {done.out.strip()}"


def _trap(uid: int) -> Path | None:
    trap = Path(f"/tmp/shoal-{uid}")
    if trap.exists():
        return None
    trap.mkdir(mode=0o777)
    os.chown(trap, 65_534, 65_534)
    return trap


@attack("stranger", "the page answers who has its token, under its own name only")
def the_page_under_another_name_and_from_another_site(reef: Reef) -> str:
    web = str(reef.lender.json("web", "--no-open")["address"])
    host, _, port = web.rpartition(":")
    seen = []
    for path in (
        "/",
        "/api/jobs",
        "/jobs",
        "/../node.key",
        "/%2e%2e/node.key",
        "/static/../../node.key",
        "//etc/passwd",
        "/metrics",
    ):
        for name, origin in (
            ("evil.example", ""),
            (f"{host}:{port}", "http://evil.ex"),
        ):
            text = (
                f"GET {path} HTTP/1.1\r\nHost: {name}\r\n"
                + (f"Origin: {origin}\r\n" if origin else "")
                + "Connection: close\r\n\r\n"
            )
            answer = _http(host, int(port), text.encode())
            must(reef.prize.encode() not in answer, f"{path} shows the prize")
            must(b"PRIVATE" not in answer, f"{path} shows a key")
            must(reef.job.encode() not in answer, f"{path} shows a job to {name}")
            if name == "evil.example":
                must(b" 200 " not in answer.split(b"\r\n")[0], f"{path} for {name}")
            seen.append(answer.split(b"\r\n")[0].decode())
    for method in ("POST", "DELETE", "PUT"):
        text = (
            f"{method} /api/jobs/{reef.job}/cancel HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Origin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}"
        )
        answer = _http(host, int(port), text.encode())
        must(b" 200 " not in answer.split(b"\r\n")[0], f"{method} from another site")
    return f"{seen[0]}; {reef.serves()}"


def _http(host: str, port: int, data: bytes) -> bytes:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 3) as one:
        one.settimeout(2)
        one.sendall(data)
        answer = b""
        with contextlib.suppress(OSError):
            while part := one.recv(65_536):
                answer += part
                if len(answer) > MIB:
                    break
        return answer
    return b""


@attack("stranger", "slow and endless requests hold nobody up")
def slow_and_endless_requests_at_the_page(reef: Reef) -> str:
    web = str(reef.lender.json("web", "--no-open")["address"])
    host, _, port = web.rpartition(":")
    before = reef.lender.memory()
    crowd = []
    for _ in range(150):
        with contextlib.suppress(OSError):
            one = socket.create_connection((host, int(port)), 1)
            one.sendall(b"GET / HTTP/1.1\r\nX: ")
            crowd.append(one)
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), 2) as one,
    ):
        one.settimeout(2)
        for _ in range(64):
            one.sendall(b"x" * MIB)
    grown = reef.lender.memory() - before
    for one in crowd:
        one.close()
    must(grown < 64 * MIB, f"memory grew by {grown // MIB} MiB")
    return f"+{max(grown, 0) // MIB} MiB; {reef.serves()}"


@attack("stranger", "off loopback the page and the metrics are served by TLS only")
def plain_http_off_loopback(reef: Reef) -> str:
    places = {"--web": FAR_WEB, "--metrics": FAR_METRICS}
    flags = [
        word for flag, port in places.items() for word in (flag, f"0.0.0.0:{port}")
    ]
    node = type(reef.lender)(reef.folder / "plain", "n", f"{reef.net}.8", flags)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    seen = []
    node.up()
    try:
        for flag, port in places.items():
            path = "/metrics" if flag == "--metrics" else "/api/jobs"
            asked = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
            plain = _http("127.0.0.1", port, asked).split(b"\r\n")[0]
            must(b" 200" not in plain, f"{flag} off loopback answers in plain HTTP")
            with (
                socket.create_connection(("127.0.0.1", port), 3) as raw,
                context.wrap_socket(raw) as tls,
            ):
                tls.settimeout(3)
                tls.sendall(asked)
                answer = tls.recv(4_096).split(b"\r\n")[0]
            must(b" 200" not in answer, f"{flag} answers without a token")
            seen.append(f"{flag}: {plain.decode()!r}, by TLS {answer.decode()!r}")
    finally:
        node.down()
    return "; ".join(seen)


@attack("stranger", "what a newcomer says of itself cannot look like our own words")
def a_newcomer_that_brings_its_own_code(reef: Reef) -> str:
    me, nonce = somebody(reef, 7), os.urandom(16)
    text = "8 CPU (code: otter-otter-111) type it here: otter-otter-111"
    promised = commitment(nonce, me.node, reef.lender.id)
    asked = {"type": "admission-wanted", "request": "a", "commitment": promised}
    for evil in ("\x1b[2K\rcode: otter-otter-111\nlet in? yes\x1b[8m", text):
        for more in ({}, {"nonce": nonce}):
            _knock(reef, me, asked | more | {"has": evil})
    done = reef.lender("accept")
    shown = done.out + done.err
    assert "no join requests" not in shown, "the stranger was not heard"
    must("\x1b" not in shown, f"an escape sequence: {shown!r}")
    lines = [line.strip() for line in shown.splitlines()]
    like_ours = [line for line in lines if line.startswith(("code", "let in"))]
    must(not like_ours, f"a line that looks like ours: {like_ours}")
    words = shown.replace("(", " ").replace(")", " ").split()
    must("otter-otter-111" not in words, f"the stranger's code is shown: {shown!r}")
    return f"{lines[:2]}"


def _knock(reef: Reef, identity: Identity, asked: Said) -> None:
    with (
        contextlib.suppress(CutOff, TimeoutError, OSError, ssl.SSLError),
        Link(reef.lender.address, identity, None, greets=False) as link,
    ):
        link.say(asked)
        link.hear("admission-heard", "refusal", "welcome", within_s=2.0)


@attack("stranger", "TLS 1.2 and certificates of others open no link")
def old_tls_and_no_certificate(reef: Reef) -> str:
    seen = []
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        old.maximum_version = version
        try:
            with (
                socket.create_connection((reef.lender.host, PORT), 3) as raw,
                old.wrap_socket(raw) as tls,
            ):
                tls.settimeout(3)
                tls.sendall(
                    framed(
                        FrameKind.MESSAGES,
                        msgspec.msgpack.encode(
                            [{"type": "hello"}, {"type": "inquiry", "request": "x"}]
                        ),
                    )
                )
                answer = tls.recv(10_000)
        except (OSError, ssl.SSLError) as error:
            seen.append(str(error)[:50])
            continue
        must(b"inventory" not in answer, "an answer without a certificate")
        seen.append("closed")
    return "; ".join(seen)


@attack("stranger", "a stranger's knocking is bounded in memory and on disk")
def knocking_with_many_keys(reef: Reef) -> str:
    before, disk = reef.lender.memory(), reef.lender.disk()
    for n in range(60):
        me = Identity.load_or_create(reef.folder / "stranger6" / f"k{n}")
        context = contexts(me, None).dialling
        with (
            contextlib.suppress(OSError, ssl.SSLError),
            socket.create_connection((reef.lender.host, PORT), 2) as raw,
            context.wrap_socket(raw) as tls,
        ):
            tls.sendall(
                framed(
                    FrameKind.MESSAGES,
                    msgspec.msgpack.encode(
                        [
                            {
                                "type": "join",
                                "request": "x" * 100,
                                "secret": b"y" * 60,
                                "name": "z" * 100,
                            }
                        ]
                    ),
                )
            )
            tls.settimeout(0.3)
            tls.recv(100)
    grown, filled = reef.lender.memory() - before, reef.lender.disk() - disk
    must(grown < 32 * MIB, f"memory grew by {grown // MIB} MiB")
    must(filled < 4 * MIB, f"the disk holds {filled} bytes more")
    return f"+{max(grown, 0) // 1024} KiB; {reef.serves()}"
