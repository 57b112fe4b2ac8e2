"""Every decoder of bytes that others send, each as a function of these bytes alone.

A target may return, or raise one of its errors. Anything else is a finding: it is
mended, and the bytes are kept in `FINDS`. `fuzz` runs the table; `test_frames` has the
frames between a node and its own processes, and all of them are here too.
"""

import contextlib
import json
import ssl
import struct
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, NoReturn, cast
from urllib.parse import unquote

import h11
import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from tests.property import mutation, test_frames
from tests.property.conversation import converse
from tests.property.mutation import Mutate
from tests.wire.examples import EXAMPLES

from shoal.api import shoal_pb2 as pb
from shoal.api.failures import error_of
from shoal.api.methods import told
from shoal.api.server.http_app import RefusalError, check_head
from shoal.api.service.function_calls import Intake
from shoal.blobs import trees
from shoal.client import plain_results, results
from shoal.client.futures import Future
from shoal.client.stream import CallStream, Pending
from shoal.core.calls.call_dispatcher import (
    Call,
    CallDispatcher,
    CallsCame,
    LaneOpened,
    LaneSaid,
)
from shoal.drivers import task_socket
from shoal.errors import (
    ProtocolError,
    ResultRefusedError,
    ShoalError,
    UnreachableError,
    UsageError,
)
from shoal.model.ids import Attempt, NodeId, OwnerId
from shoal.model.spec.submission import load_spec
from shoal.net import multiaddr
from shoal.net.direct.frames import FrameKind, FrameReader, framed
from shoal.net.identity import certificates, vouched_certificates
from shoal.net.identity.identity import Identity, public_key
from shoal.net.joining import invitations, lan_discovery
from shoal.protocol import blob_hashing as hashing
from shoal.protocol import call_items, codec, plain_values
from shoal.protocol.messages import Grant
from shoal.runtime.artifacts import sealing
from shoal.runtime.membership.shoal_membership import issue
from shoal.train import tensors
from shoal.train.diloco import messages as training
from shoal.train.diloco.shares.messages import (
    Duties,
    Reduced,
    Reduction,
    ShareNorm,
    ShareOutcome,
    ShareReport,
    ShareSource,
    ShareWeight,
    decode_for_worker,
    decode_from_worker,
)
from shoal.web.site import Guard


class Target(NamedTuple):
    """A decoder, what it understands, and how it may say no."""

    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    errors: tuple[type[Exception], ...] = ()
    mutate: Mutate = mutation.bytewise
    share: int = 10  # of all frames; slow ones get less


# Between nodes.


@cache
def _wire() -> list[bytes]:
    return [frame for message in EXAMPLES.values() for frame in codec.encode([message])]


@cache
def _gossip() -> list[bytes]:
    return [
        codec.encode_gossip(message)
        for message in EXAMPLES.values()
        if isinstance(message, codec.Gossip)
    ]


def _streams() -> list[bytes]:
    messages = [framed(FrameKind.MESSAGES, frame) for frame in _wire()[:20]]
    controls = [framed(kind, b"12345678") for kind in FrameKind]
    return [*messages, *controls, b"".join(controls)]


def _read_stream(data: bytes) -> None:
    reader = FrameReader()
    for start in range(0, len(data), 7):
        for frame in reader.feed(data[start : start + 7]):
            if frame.kind is FrameKind.MESSAGES:
                codec.decode(frame.payload)


@cache
def _grant() -> Grant:
    grant = Grant(
        node=_own().node,
        shoal="reef",
        roles=("scheduler", "worker"),
        owner=OwnerId("o"),
        top_priority=10,
        expires_wall_s=4e9,
    )
    return issue(_own(), grant)


@cache
def _own() -> Identity:
    return Identity.generate()


def _certificates() -> list[bytes]:
    return [certificates.certificate(_own(), grant) for grant in (None, _grant())]


def _vouchers() -> list[bytes]:
    made = vouched_certificates.vouched(
        _own(), _grant(), vouched_certificates.new_key(), ["localhost"]
    )
    return [ssl.PEM_cert_to_DER_cert(made.decode())]


# Invitations and addresses.


INVITATION_BYTES_MAX: Final = 10_000


def _invitations() -> list[bytes]:
    made = invitations.Invitation(
        "shoal",
        invitations.key_print(_own().node),
        invitations.new_secret(),
        1_700_000_000,
        ("/ip4/127.0.0.1/tcp/4000",),
    )
    return [invitations.encode(made).encode()]


def _invited(draw: Random, seeds: Sequence[bytes]) -> bytes:
    """Harm what is in an invitation, under checks that hold."""
    if draw.random() < 0.5:
        return mutation.bytewise(draw, seeds)
    invitation = invitations.decode(draw.choice(seeds).decode())
    body = mutation.packed(draw, [msgspec.msgpack.encode(invitation)])
    if len(body) > INVITATION_BYTES_MAX:
        return body
    raw = msgspec.Raw(body)
    try:
        return invitations.encode(cast("invitations.Invitation", raw)).encode()
    except msgspec.MsgspecError:
        return body


def _address(data: bytes) -> object:
    return multiaddr.parse(data.decode("utf-8", "replace"))


ADDRESSES: Final = (b"/ip4/127.0.0.1/tcp/4000", b"/dns4/a.example/tcp/1/p2p/x")


def _near(data: bytes) -> object:
    parts = data.split(b"\0")
    return lan_discovery.read(dict(zip(parts[::2], parts[1::2], strict=False)))


def _nears() -> list[bytes]:
    node = _own().node.encode()
    return [b"\0".join((b"id", node, b"shoal", b"reef", b"a0", ADDRESSES[0]))]


def _key(data: bytes) -> object:
    return public_key(NodeId(data.decode("utf-8", "replace")))


# Blobs.


def _trees() -> list[bytes]:
    blob = hashing.name_of_bytes(b"hello")
    entries = [
        trees.TreeEntry("a", "folder"),
        trees.TreeEntry("a/b", "file", blob),
        trees.TreeEntry("a/l", "link", "b"),
    ]
    return [trees.encode(trees.make(b"salt" * 8, entries))]


def _proof(data: bytes) -> None:
    name = data[:80].decode("utf-8", "replace")
    size = hashing.size_of(name)
    if size is not None and size < 1 << 40:
        proof = hashing.Proof(hashing.name_of(size, bytes(32)), size)
        if proof.top:  # Only places that were asked for reach it.
            level = 1 + len(data) % proof.top
            proof.accepts(level, len(data) % proof.counts[level], data[80:])


# Functions.


def _plain() -> list[bytes]:
    values: list[Any] = [
        {"a": [1.5, (2, "x"), {3, 4}], "b": 1 << 80, "c": b"bytes"},
        [1.0] * 40,
        {"array": np.arange(6).reshape(2, 3), "text": np.array(["a", "b"])},
        [np.float32(1), 1j, b"x" * 5_000],
    ]
    return [b"".join(plain_values.dumps(value)) for value in values]


def _exceptions() -> list[bytes]:
    told = ("builtins", "ValueError", ("x", 1), "Traceback\nValueError: x", b"\0pickle")
    return [b"".join(plain_values.dumps(told)), b"\x80\x05N."]


def _value(data: bytes) -> object:
    return results.value_of(data, pickles=False)


def _exception(data: bytes) -> None:
    found = results.exception_of(data, pickles=False)
    assert isinstance(found, Exception), "SystemExit would end the caller"


LANE: Final = Attempt(NodeId("s"), 1, 1)


def _items() -> list[bytes]:
    kinds = range(call_items.READY, call_items.GOING + 1)
    items = [call_items.item(kind, number, b"v") for kind in kinds for number in (1, 2)]
    rows = [items[n : n + 4] for n in range(0, len(items), 4)]
    return [b"".join(struct.pack("<I", len(i)) + i for i in row) for row in rows]


def _call_dispatcher(data: bytes) -> None:
    """Let a lane say this; the codec lets no item pass that has no head."""
    machine = CallDispatcher({}, lanes_max=2, idle_s=1.0)
    machine.handle(CallsCame([Call(n, 0, (b"",)) for n in range(4)]), 0.0)
    machine.handle(LaneOpened(LANE), 0.1)
    items: list[bytes] = []
    while len(data) >= 4:
        size = struct.unpack_from("<I", data)[0] % 64
        items.append(data[4 : 4 + size])
        data = data[4 + size :]
    whole = [each for each in items if len(each) >= call_items.HEAD_BYTES]
    machine.handle(LaneSaid(LANE, whole, own=False), 0.2)


class _Session:
    """Takes what a client says, as far as the intake lets it through."""

    name = "s"
    of = OwnerId("o")

    def open_pool(
        self, id_: int, spec: str, lanes_max: int, idle_s: float, never_s: float = 0.0
    ) -> None:
        load_spec(spec, "json")

    def define(self, id_: int, code: bytes) -> None:
        """Keep it."""

    def call(self, pool: int, calls: list[Call]) -> None:
        """Run it."""

    def stop(self, calls: tuple[int, ...]) -> None:
        """Stop it."""

    def backlog(self, pool: int, waiting: int) -> None:
        """Know it."""


def _calls(data: bytes) -> None:
    session: Any = _Session()
    Intake(session).take(pb.CallsRequest.FromString(data))


def _calls_requests() -> list[bytes]:
    spec = json.dumps({"command": ["python3"], "resources": {"cpu": 1}})
    request = pb.CallsRequest(
        pools=[pb.CallPool(id=1, spec=spec, lanes_max=2, idle_s=1.5)],
        functions=[pb.CallFunction(id=1, code=b"code")],
        calls=[
            pb.Call(id=1, pool=1, function=1, payload=b"x", more=True),
            pb.Call(id=1, pool=1, payload=b"y", retries=3),
        ],
        backlogs=[pb.CallBacklog(pool=1, waiting=9)],
        stops=[1, 2],
    )
    return [request.SerializeToString()]


def _replies(data: bytes) -> None:
    """Let a client hear this from a node that is not its own."""
    stream = CallStream(_no_wire)
    pool = stream.pool("{}", 1, 1.0)
    calls = [Pending(pool, 0, (b"",), 0, Future()) for _ in range(3)]
    for number, call in enumerate(calls, 1):
        call.id = number
        stream._sent[number] = call
    stream._on_reply(pb.CallsReply.FromString(data), believed=False)


def _no_wire() -> NoReturn:
    raise UnreachableError("nobody is there")


def _calls_replies() -> list[bytes]:
    kinds = [pb.CallResult.KIND_VALUE, pb.CallResult.KIND_RAISED]
    kinds += [pb.CallResult.KIND_LOST, pb.CallResult.KIND_REFUSED]
    bodies = [*_plain()[:1], *_exceptions()[:1], b"why", b"why"]
    rows = zip(kinds, bodies, strict=True)
    ends = [pb.CallResult(id=n, kind=k, payload=p) for n, (k, p) in enumerate(rows)]
    begin = pb.CallResult(id=2, kind=kinds[0], payload=b"\2", more=True)
    state = pb.CallPoolState(id=1, credit=4, lanes=1)
    reply = pb.CallsReply(results=[begin, *ends], pools=[state])
    return [reply.SerializeToString()]


# The API, its page, and documents.


def _api(data: bytes) -> None:
    """Read a request of the plain socket: the name of a call, and what it asks."""
    name, _, body = data.partition(b"\0")
    kinds = pb.DESCRIPTOR.services_by_name["Shoal"].methods_by_name
    if (method := kinds.get(name.decode("utf-8", "replace"))) is not None:
        getattr(pb, method.input_type.name).FromString(body)


def _api_requests() -> list[bytes]:
    spec = json.dumps({"command": "true"})
    submit = pb.SubmitRequest(job_id="j", json=spec).SerializeToString()
    watch = pb.WatchRequest(job="last").SerializeToString()
    return [b"Submit\0" + submit, b"Watch\0" + watch, b"Nodes\0"]


def _failure(data: bytes) -> None:
    error = error_of(pb.Error.FromString(data))
    told(error)
    str(error)


def _web(data: bytes) -> None:
    """Read a request of the page, up to the guard and what it says."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=16_384)
    http.receive_data(data)
    while not isinstance(event := http.next_event(), type(h11.NEED_DATA)):
        if isinstance(event, h11.Request):
            path, _, query = event.target.partition(b"?")
            scope = {
                "http_version": event.http_version.decode(),
                "method": event.method.decode(),
                "path": unquote(path.decode("ascii")),
                "raw_path": path,
                "query_string": query,
                "headers": list(event.headers),
            }
            check_head(scope)
            GUARD.check(scope)
        elif not isinstance(event, h11.Data):
            break


GUARD: Final = Guard(lambda: "token", "127.0.0.1", lambda _: None)
TOLD: Final = b"Host: localhost\r\nAuthorization: Bearer token\r\n"
POST: Final = b"POST /api/jobs HTTP/1.1\r\n" + TOLD
WEB: Final = (
    b"GET /api/jobs?a=1&b=%41 HTTP/1.1\r\n" + TOLD + b"\r\n",
    POST + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
)
SWEEP: Final = b"""
name: a
command: [sh, -c, 'echo {lr}']
resources: {cpu: 2, ram: 4GB, gpu: 1}
sweep: {lr: [0.1, 0.2]}
retry: {max: 3}
outputs: ['out/*']
time_limit: 2h
"""
STEPS: Final = b"""
steps:
  a: {command: 'true'}
  b: {command: ls, needs: [a]}
env: {A: b}
"""
REDUCTION: Final = Reduction(
    3, (0, 1), (ShareSource("a", "x@n", ("y@n", "z@n")),), 2, (ShareWeight("a", 8),)
)
REDUCED: Final = Reduced(
    3, (ShareNorm("a", "x", 0, 1.0),), 2, (ShareOutcome(0, "u", 7),)
)
JSON: Final = (
    json.dumps({"command": "true", "array": 3, "secrets": ["A"], "env": {"A": "1"}}),
    json.dumps({"command": ["a"], "resources": {"gpu": "24GB:2", "cpu": 0.5}}),
)


def _figures(data: bytes) -> None:
    for line in data.split(b"\n"):
        task_socket.parse(line)


FIGURES: Final = (
    b'{"metrics": {"loss": 0.3}, "step": 7, "progress": 0.5}\n',
    b'{"call": "put", "path": "model.pt"}',
)


# Training.


def _tensors() -> list[bytes]:
    flat = np.arange(6, dtype=np.float32)
    layout = tensors.layout_of({"a": flat[:4].reshape(2, 2), "b": flat[4:]})
    state = tensors.State(3, 1, layout, flat, flat, flat.astype(np.float16))
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / each for each in ("weights", "state", "fragment")]
        tensors.save_weights(paths[0], layout, flat)
        tensors.save_state(paths[1], state)
        part = tensors.Fragment(slice(0, 6), slice(6, 6))
        tensors.save_fragment(paths[2], part, [flat.tobytes()], flat[:0], "float32")
        return [path.read_bytes() for path in paths]


def _weights(data: bytes) -> None:
    part = tensors.Fragment(slice(0, 6), slice(6, 6))
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        path = Path(file.name)
        with contextlib.suppress(ProtocolError):
            tensors.load_weights(path)
        with contextlib.suppress(ProtocolError):
            tensors.load_state(path, 1)
        tensors.fragment_buffers(path, part)
        list(tensors.fragment_chunks(path, part))


def _seal(data: bytes) -> None:
    sealing.unseal(_own(), "secret A of x", data)


def _node_frame(fuzz: Callable[[bytes], None], valid: bytes) -> tuple[str, Target]:
    name = fuzz.__name__.removeprefix("fuzz_").replace("_", " ")
    return name, Target(fuzz, lambda: [valid], share=1 if "lane" in name else 3)


TARGETS: Final[dict[str, Target]] = {
    "codec": Target(codec.decode, _wire, (ProtocolError,), mutation.packed, 200),
    "gossip": Target(
        codec.decode_gossip, _gossip, (ProtocolError,), mutation.packed, 40
    ),
    "conversation": Target(converse, lambda: [b"13"], share=1),
    "link": Target(_read_stream, _streams, (ProtocolError,), share=60),
    "certificate": Target(certificates.read, _certificates, (ProtocolError,), share=5),
    "voucher": Target(vouched_certificates.read, _vouchers, (ProtocolError,), share=5),
    "invitation": Target(
        lambda data: invitations.decode(data.decode("latin-1")),
        _invitations,
        (UsageError,),
        _invited,
        share=20,
    ),
    "address": Target(_address, lambda: ADDRESSES, (UsageError,), share=20),
    "node id": Target(_key, lambda: [_own().node.encode()], (UsageError,), share=20),
    "lan": Target(_near, _nears),
    "tree": Target(trees.decode, _trees, (), mutation.packed, 40),
    "blob name": Target(
        _proof, lambda: [hashing.name_of_bytes(b"hello").encode() + b"x" * 90]
    ),
    "plain result": Target(plain_results.loads, _plain, (ProtocolError,), share=40),
    "result": Target(_value, _plain, (ProtocolError, ResultRefusedError), share=20),
    "exception": Target(_exception, _exceptions, share=20),
    "lane items": Target(_call_dispatcher, _items, share=40),
    "calls": Target(_calls, _calls_requests, (ShoalError, DecodeError), share=10),
    "replies": Target(_replies, _calls_replies, (DecodeError,), share=10),
    "plain request": Target(_api, _api_requests, (DecodeError,), share=20),
    "failure": Target(
        _failure,
        lambda: [pb.Error(what="a", because="b", kind="usage").SerializeToString()],
        (DecodeError,),
    ),
    "web": Target(_web, lambda: WEB, (h11.RemoteProtocolError, RefusalError), share=20),
    "yaml": Target(
        lambda data: load_spec(data, "yaml"),
        lambda: (SWEEP, STEPS),
        (UsageError,),
        share=2,
    ),
    "json": Target(
        lambda data: load_spec(data, "json"),
        lambda: [text.encode() for text in JSON],
        (UsageError,),
        mutation.written,
        share=10,
    ),
    "task socket": Target(_figures, lambda: FIGURES, (), mutation.bytewise, 40),
    "sealed": Target(
        _seal, lambda: [sealing.seal(_own().node, "secret A of x", b"v")], share=2
    ),
    "training": Target(
        decode_for_worker,
        lambda: [
            training.encode(training.Directive(epoch=1, seq=2, steps={"a": 3})),
            training.encode(Duties(epoch=1, seq=2, reductions=(REDUCTION,))),
        ],
        (ProtocolError,),
        mutation.packed,
    ),
    "training reports": Target(
        decode_from_worker,
        lambda: [
            training.encode(training.Status(worker="a", merged=3)),
            training.encode(ShareReport(worker="a", reduced=(REDUCED,))),
        ],
        (ProtocolError,),
        mutation.packed,
    ),
    "weights": Target(_weights, _tensors, (ProtocolError,), share=5),
    **dict(_node_frame(fuzz, valid) for fuzz, valid in test_frames.DECODERS),
}


def _unreadable_voucher() -> bytes:
    """Return a certificate with a node in it whose id is no text."""
    [good] = _vouchers()
    node = _own().node.encode()
    return good.replace(node, b"\xff" * len(node), 1)


FINDS: Final[dict[str, Callable[[], bytes]]] = {
    "voucher": _unreadable_voucher,
    "blob name": lambda: (hashing.name_of_bytes(b"hello") + "-" * 7).encode()[:66],
    "replies": lambda: pb.CallsReply(
        pools=[pb.CallPoolState(id=99, credit=1)]
    ).SerializeToString(),
    "plain request": lambda: b"\xff\xfe\0",
}
"""What once broke a target, by its name."""


def seeds_of(target: Target) -> Sequence[bytes]:
    """Return what a target understands."""
    return list(target.seeds())


def tried(target: Target, data: bytes) -> str:
    """Run a target; return `ok` or the name of its error. All else is raised."""
    try:
        target.run(data)
    except target.errors as error:
        return type(error).__name__
    return "ok"
