"""Calls another node of the same owner through the local node.

A client uses it in place of `SocketCalls`; `service/forward` is the node's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.errors import ShoalError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

    from shoal.api.client.socket_client import SocketCalls

M = TypeVar("M", bound="Message")


@final
class ForwardedCalls:
    """Calls one node through another."""

    def __init__(self, near: SocketCalls, node: str) -> None:
        """Forward through the node of `near` to the node that a user calls `node`."""
        self._near = near
        self._node = node

    def ask(self, method: str, request: Message, type_: type[M], timeout_s: float) -> M:
        """Return the single answer to a call."""
        for answer in self.follow(method, request, type_, timeout_s):
            return answer
        raise UnreachableError(f"the node {self._node} gave no answer")

    def follow(
        self, method: str, request: Message, type_: type[M], timeout_s: float | None
    ) -> Iterator[M]:
        """Yield the answers to a call as they arrive."""
        wrapped = pb.ForwardRequest(
            node=self._node, method=method, request=request.SerializeToString()
        )
        replies = self._near.follow("Forward", wrapped, pb.ForwardReply, timeout_s)
        for reply in replies:
            try:
                answer = type_.FromString(reply.reply)
            except DecodeError:
                raise ShoalError(
                    f"the node {self._node} answered what is no answer",
                    because="it is of another version than this one, or broken",
                    hint="run the same version of shoal on both",
                ) from None
            yield answer
