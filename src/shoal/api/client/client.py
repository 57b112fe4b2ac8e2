"""A blocking client of a node's API, used by commands and the Python API.

`connect` picks the transport: the local socket for the user's own node, forwarding
through the local node for a node given by name, and gRPC over TLS for an address.
Imports are kept fast: gRPC is loaded only for nodes on other machines, and for calls
whose requests are a stream.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar, final

from shoal import task_client
from shoal.api import node_file
from shoal.api import shoal_pb2 as pb
from shoal.api.client.socket_client import ForwardedCalls, SocketCalls, plain_socket
from shoal.api.client.token_files import token_in
from shoal.api.node_file import home_serving
from shoal.errors import UnreachableError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import TracebackType

    import grpc
    from google.protobuf.message import Message

    from shoal.api.client.grpc_stream import GrpcStream
    from shoal.api.client.socket_client import SocketStream
    from shoal.api.client.tls_client import Credentials
    from shoal.api.node_file import NodeFile

TIMEOUT_S: Final = 20.0
"""Timeout of calls that the node can answer at once."""

MESSAGE_BYTES_MAX: Final = 64 << 20
TASK_SHOAL: Final = "of this task's job"
HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})

M = TypeVar("M", bound="Message")
TaskChannel: TypeAlias = "SocketStream | GrpcStream"

_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)


_CALLED: Final = ("grpc.ssl_target_name_override", "shoal")
"""The name in every node's certificate; nodes are identified by their key."""


@final
class Client:
    """A connection to one node. Methods raise the `ShoalError` that it reports."""

    def __init__(
        self,
        target: str,
        *,
        name: str,
        token: str = "",
        credentials: Credentials | None = None,
        plain: SocketCalls | ForwardedCalls | None = None,
        streams: SocketCalls | None = None,
    ) -> None:
        """Call the node at the gRPC target `target`; messages call it `name`.

        `plain` takes the place of gRPC, and `streams` also for streams of requests.
        """
        self._name = name
        self._target = target
        self._credentials = credentials
        self._plain = plain
        self._open: grpc.Channel | None = None
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.is_own = credentials is None or credentials.is_own
        self._streams = streams

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open is not None:
            self._open.close()

    def submit(self, request: pb.SubmitRequest) -> pb.SubmitReply:
        """Submit a job."""
        return self._ask("Submit", request, pb.SubmitReply)

    def get(self, job: str, tasks_max: int = 0, tasks_from: int = 0) -> pb.Job:
        """Return a job and its tasks; `tasks_from` leaves out the first ones."""
        request = pb.GetRequest(job=job, tasks_max=tasks_max, tasks_from=tasks_from)
        return self._ask("Get", request, pb.Job)

    def jobs(
        self, *, active_only: bool = False, jobs_max: int = 0, active_max: int = 0
    ) -> pb.ListReply:
        """Return the newest jobs, and up to `active_max` older active ones."""
        request = pb.ListRequest(
            active_only=active_only, jobs_max=jobs_max, active_max=active_max
        )
        return self.jobs_like(request)

    def jobs_like(self, request: pb.ListRequest) -> pb.ListReply:
        """Return the jobs that a request asks for."""
        return self._ask("List", request, pb.ListReply)

    def jobs_everywhere(self, asked: pb.ListRequest) -> pb.ListEverywhereReply:
        """Return jobs of all nodes of the same owner, by node."""
        request = pb.ListEverywhereRequest(list=asked)
        return self._ask("ListEverywhere", request, pb.ListEverywhereReply)

    def watch(self, job: str, timeout_s: float | None = None) -> Iterator[pb.Job]:
        """Yield a job whenever it changes, until it ends."""
        return self._follow("Watch", pb.WatchRequest(job=job), pb.Job, timeout_s)

    def logs(self, request: pb.LogsRequest) -> Iterator[pb.LogPiece]:
        """Yield the output of tasks."""
        return self._follow("Logs", request, pb.LogPiece, None)

    def cancel(self, job: str, reason: str = "", task: str = "") -> pb.CancelReply:
        """Cancel a job, or one task of it."""
        request = pb.CancelRequest(job=job, reason=reason, task=task)
        return self._ask("Cancel", request, pb.CancelReply)

    def remove(self, job: str) -> pb.RemoveReply:
        """Forget an ended job, with all it left."""
        return self._ask("Remove", pb.RemoveRequest(job=job), pb.RemoveReply)

    def usage(self, since_s: float, by: str) -> pb.UsageReply:
        """Return what was used and lent, by owner and week, day, job or node."""
        request = pb.UsageRequest(since_s=since_s, by=by)
        return self._ask("Usage", request, pb.UsageReply)

    def drain(
        self, *, grace_s: float | None = None, undo: bool = False
    ) -> pb.DrainReply:
        """Let the node take no new tasks, or take them again."""
        request = pb.DrainRequest(grace_s=grace_s, undo=undo)
        return self._ask("Drain", request, pb.DrainReply)

    def allocations(self, verb: str, **fields: Any) -> pb.AllocationsReply:  # noqa: ANN401
        """Add, try, list or change what the node may ask of engines."""
        request = pb.AllocationsRequest(verb=verb, **fields)
        return self._ask("Allocations", request, pb.AllocationsReply)

    def retry(self, request: pb.RetryRequest) -> pb.SubmitReply:
        """Run a job again."""
        return self._ask("Retry", request, pb.SubmitReply)

    def curves(self, job: str, since_s: float = 0.0) -> pb.CurvesReply:
        """Return metrics that a job's tasks reported, over time."""
        request = pb.CurvesRequest(job=job, since_s=since_s)
        return self._ask("Curves", request, pb.CurvesReply)

    def plan(self, request: pb.PlanRequest) -> pb.PlanReply:
        """Return where a job would be placed, without submitting it."""
        return self._ask("Plan", request, pb.PlanReply)

    def events(self, request: pb.EventsRequest) -> Iterator[pb.Event]:
        """Yield events."""
        return self._follow("Events", request, pb.Event, None)

    def metrics(self) -> str:
        """Return the node's metrics in the Prometheus text format."""
        return self._ask("Metrics", pb.MetricsRequest(), pb.MetricsReply).text

    def explain(self, job: str, task: str = "") -> pb.ExplainReply:
        """Return why tasks wait, or run where they do."""
        request = pb.ExplainRequest(job=job, task=task)
        return self._ask("Explain", request, pb.ExplainReply)

    def nodes(self) -> pb.NodesReply:
        """Return all known nodes."""
        return self._ask("Nodes", pb.NodesRequest(), pb.NodesReply)

    def forget(self, node: str) -> pb.ForgetReply:
        """Take a node that is away off the list."""
        return self._ask("Forget", pb.ForgetRequest(node=node), pb.ForgetReply)

    def ping(self, node: str, timeout_s: float) -> pb.PingReply:
        """Measure the round trip to a node, given by id."""
        request = pb.PingRequest(node=node, timeout_s=timeout_s)
        return self._ask("Ping", request, pb.PingReply)

    def info(self) -> pb.NodeInfo:
        """Return identity, addresses and state of the node."""
        return self._ask("Info", pb.InfoRequest(), pb.NodeInfo)

    def invite(self, request: pb.InviteRequest) -> pb.InviteReply:
        """Create an invitation to the shoal."""
        return self._ask("Invite", request, pb.InviteReply)

    def requests(self) -> pb.RequestsReply:
        """Return pending requests to join."""
        return self._ask("Requests", pb.RequestsRequest(), pb.RequestsReply)

    def accept(
        self, node: str, *, code: str = "", decline: bool = False, mine: bool = False
    ) -> pb.AcceptReply:
        """Accept or decline a request to join, incoming or this node's own.

        An incoming request is accepted only with the code that the asking node shows.
        """
        request = pb.AcceptRequest(node=node, decline=decline, mine=mine, code=code)
        return self._ask("Accept", request, pb.AcceptReply)

    def revoke(self, node: str) -> pb.RevokeReply:
        """Revoke the grants of a node."""
        return self._ask("Revoke", pb.RevokeRequest(node=node), pb.RevokeReply)

    def missing_blobs(self, blobs: Iterable[str]) -> pb.MissingBlobsReply:
        """Return which blobs the node lacks."""
        request = pb.MissingBlobsRequest(blobs=blobs)
        return self._ask("MissingBlobs", request, pb.MissingBlobsReply)

    def put_blobs(self, parts: Iterator[pb.BlobPart]) -> pb.PutBlobsReply:
        """Send blobs, without a timeout."""
        if self._streams is not None:
            return _put_blobs(self._streams, parts)
        with self._errors_told():
            call = self._method("stream_unary", "PutBlobs", pb.PutBlobsReply)
            reply: pb.PutBlobsReply = call(parts, metadata=self._metadata)
            return reply

    def get_blobs(self, blobs: Iterable[str]) -> Iterator[pb.BlobPart]:
        """Yield blobs in parts."""
        request = pb.GetBlobsRequest(blobs=blobs)
        return self._follow("GetBlobs", request, pb.BlobPart, None)

    def outputs(self, job: str, task: str = "") -> pb.OutputsReply:
        """Return what a job's tasks left: outputs or checkpoints."""
        request = pb.OutputsRequest(job=job, task=task)
        return self._ask("Outputs", request, pb.OutputsReply)

    def set_secret(self, name: str, value: str) -> bool:
        """Store a secret; return whether it replaced one."""
        request = pb.SetSecretRequest(name=name, value=value)
        return self._ask("SetSecret", request, pb.SetSecretReply).replaced

    def secrets(self) -> list[str]:
        """Return the names of secrets."""
        reply = self._ask("ListSecrets", pb.ListSecretsRequest(), pb.ListSecretsReply)
        return list(reply.names)

    def remove_secret(self, name: str) -> None:
        """Delete a secret."""
        request = pb.RemoveSecretRequest(name=name)
        self._ask("RemoveSecret", request, pb.RemoveSecretReply)

    def shutdown(self, grace_s: float, leaves_because: str = "") -> pb.ShutdownReply:
        """Shut the node down; if it leaves its shoal, others get what they can take."""
        request = pb.ShutdownRequest(grace_s=grace_s, leaves_because=leaves_because)
        return self._ask("Shutdown", request, pb.ShutdownReply)

    def rotate_token(self) -> str:
        """Replace the node's token; return the path of the new one."""
        request = pb.RotateTokenRequest()
        return self._ask("RotateToken", request, pb.RotateTokenReply).path

    def calls(self, requests: Iterator[pb.CallsRequest]) -> Iterator[pb.CallsReply]:
        """Call functions over a stream, which ends with `requests`."""
        assert self._streams is None, "a task has a wire of its own"
        with self._errors_told():
            call = self._method("stream_stream", "Calls", pb.CallsReply)
            yield from call(requests, metadata=self._metadata)

    def calls_stream(self) -> SocketStream:
        """Begin to call functions from inside a task."""
        assert self._streams is not None
        return self._streams.stream("Calls", pb.CallsRequest())

    def channel(self, target: pb.ChannelTarget) -> TaskChannel:
        """Open a channel to a task."""
        first = pb.ChannelRequest(target=target)
        if self._plain is not None:
            return self._plain.stream("Channel", first)
        from shoal.api.client.grpc_stream import GrpcStream  # noqa: PLC0415 - Slow.

        call = self._method("stream_stream", "Channel", pb.ChannelReply)
        return GrpcStream(call, self._metadata, first, self._name)

    @property
    def _channel(self) -> grpc.Channel:
        if self._open is None:
            self._open = _channel(self._target, self._credentials)
        return self._open

    def _ask(self, method: str, request: Message, type_: type[M]) -> M:
        if self._plain is not None:
            return self._plain.ask(method, request, type_, TIMEOUT_S)
        with self._errors_told():
            call = self._method("unary_unary", method, type_)
            reply: M = call(request, timeout=TIMEOUT_S, metadata=self._metadata)
            return reply

    def _follow(
        self, method: str, request: Message, type_: type[M], timeout_s: float | None
    ) -> Iterator[M]:
        if self._plain is not None:
            yield from self._plain.follow(method, request, type_, timeout_s)
            return
        with self._errors_told():
            call = self._method("unary_stream", method, type_)
            yield from call(request, timeout=timeout_s, metadata=self._metadata)

    def _method(self, kind: str, name: str, type_: type[Message]) -> Callable[..., Any]:
        """Return a method of the node over gRPC; `kind` says which side streams."""
        call: Callable[..., Any] = getattr(self._channel, kind)(
            f"/shoal.v1.Shoal/{name}",
            request_serializer=_serialized,
            response_deserializer=type_.FromString,
        )
        return call

    @contextmanager
    def _errors_told(self) -> Generator[None]:
        """Raise errors of gRPC as what the node reported."""
        import grpc  # noqa: PLC0415 - Slow to import.

        from shoal.api.grpc_failures import unpacked  # noqa: PLC0415

        try:
            yield
        except grpc.RpcError as error:
            raise unpacked(error, self._name) from None


def connect(
    node: str | None = None, home: Home | None = None, token: str | None = None
) -> Client:
    """Return a client of a node; without `node`, of the one of this home.

    `node` is HOST:PORT, or the name of another node of the same owner; the local node
    forwards calls to the latter, if they are about jobs.

    A node of this user on this machine is called over its socket, even if it is given
    by port. Others are called over TLS, after they have proved their identity: a token
    is shown only to the node whose key fingerprint it contains, not to whoever has the
    port. Without `token`, use that of the environment, or else a certificate.

    Inside a task, without `node`, calls go to the scheduler of its job.
    """
    home = home or Home.default()
    if not node and node_file.in_task():
        return client_in_task()
    if not node:
        return client_of(node_file.required(home))
    if ":" not in node:
        return _by_the_own_node(node_file.required(home), node)
    token = token or token_given()
    if not token and (found := _own_node_at(node, home)) is not None:
        return client_of(found)
    from shoal.api.client.tls_client import credentials_for  # noqa: PLC0415 - Slow to import.

    credentials = credentials_for(node, token, home)
    return Client(node, name=node, token=token, credentials=credentials)


def client_of(found: NodeFile) -> Client:
    """Return a client of a local node of this user."""
    path = plain_socket(found.socket)
    plain = SocketCalls(path, found.petname) if path.exists() else None  # Old node.
    return Client(f"unix:{found.socket}", name=found.petname, plain=plain)


def client_in_task() -> Client:
    """Return a client of the shoal that runs the task which this is."""
    calls = SocketCalls(Path(), TASK_SHOAL, task_client.api_connection)
    return Client("", name=TASK_SHOAL, plain=calls, streams=calls)


def _put_blobs(calls: SocketCalls, parts: Iterator[pb.BlobPart]) -> pb.PutBlobsReply:
    stream = calls.stream("PutBlobs", next(parts, pb.BlobPart()))
    try:
        with contextlib.suppress(OSError):  # If it is refused, the answer says why.
            for part in parts:
                stream.send(part)
            stream.end()
        for reply in stream.replies(pb.PutBlobsReply):
            return reply
    finally:
        stream.close()
    raise UnreachableError(f"{TASK_SHOAL} gave no answer")


def _by_the_own_node(found: NodeFile, node: str) -> Client:
    near = SocketCalls(plain_socket(found.socket), found.petname)
    return Client(node, name=node, plain=ForwardedCalls(near, node))


def is_here(node: str) -> bool:
    """Return whether an address is loopback, where nobody can eavesdrop."""
    return node.rpartition(":")[0].strip("[]") in HERE


def token_given() -> str:
    """Return the token from `SHOAL_TOKEN` or `SHOAL_TOKEN_FILE`, or ""."""
    if token := os.environ.get("SHOAL_TOKEN"):
        return token
    return token_in(path) if (path := os.environ.get("SHOAL_TOKEN_FILE")) else ""


def _own_node_at(node: str, home: Home) -> NodeFile | None:
    """Return this user's node that serves a loopback address, if any."""
    if not is_here(node):
        return None
    port = node.rpartition(":")[2]
    found = node_file.read(home)
    if found is not None and found.api.rpartition(":")[2] == port:
        return node_file.required(home)
    own = home_serving(int(port))
    return None if own is None else node_file.required(own)


def _channel(target: str, credentials: Credentials | None) -> grpc.Channel:
    import grpc  # noqa: PLC0415 - Slow to import.

    if credentials is None:
        return grpc.insecure_channel(target, options=_OPTIONS)
    tls = grpc.ssl_channel_credentials(
        root_certificates=credentials.trusted,
        private_key=credentials.key or None,
        certificate_chain=credentials.certificate or None,
    )
    return grpc.secure_channel(target, tls, options=(*_OPTIONS, _CALLED))


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
