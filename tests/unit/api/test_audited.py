"""No call of the API is forgotten in the audit log."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.api.methods import snake
from shoal.api.service.audited import (
    AUDITED,
    NOT_AUDITED,
    Origin,
    audited,
    came_by,
    refused,
)
from shoal.api.service.service import Service
from shoal.core.durability.audit_chain import AuditEntry
from shoal.errors import NotAllowedError, NotFoundError

METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["Shoal"].methods]


def test_every_call_is_written_down_or_has_a_reason_not_to_be() -> None:
    assert sorted((*AUDITED, *NOT_AUDITED)) == sorted(METHODS)
    assert all(NOT_AUDITED.values())


@pytest.mark.parametrize("method", AUDITED)
def test_the_service_of_a_node_is_wrapped(method: str) -> None:
    call = getattr(Service, f"on_{snake(method)}")

    assert call.__wrapped__


class Memory:
    """What all services here can do."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.audit = self
        self.entries: list[AuditEntry] = []
        self.fails = fails

    def note(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    def owner_of(self, job: str) -> str:
        return "bob" if job == "bobs" else ""


def make(method: Any, streams: bool) -> Any:  # noqa: ANN401 - A method of any call.
    reply_type = getattr(pb, method.output_type.name)

    async def answer(self: Memory, request: object) -> object:
        if self.fails is not None:
            raise self.fails
        return reply_type()

    async def stream(self: Memory, request: object) -> AsyncIterator[object]:
        yield await answer(self, request)
        yield reply_type()

    return stream if streams else answer


def service(fails: Exception | None = None) -> Any:  # noqa: ANN401 - It has any method.
    described = pb.DESCRIPTOR.services_by_name["Shoal"].methods
    methods = {f"on_{snake(m.name)}": make(m, m.server_streaming) for m in described}
    made: Any = audited(type("Fake", (Memory,), methods))
    return made(fails)


async def call(node: Any, method: str, request: object) -> None:  # noqa: ANN401
    answer = getattr(node, f"on_{snake(method)}")(request)
    if hasattr(answer, "__aiter__"):
        async for _ in answer:
            pass
    else:
        await answer


def request_of(method: str) -> object:
    described = pb.DESCRIPTOR.services_by_name["Shoal"].methods_by_name[method]
    return getattr(pb, described.input_type.name)()


@pytest.mark.parametrize("method", METHODS)
def test_each_is_written_once_when_it_is_done(method: str) -> None:
    node = service()

    asyncio.run(call(node, method, request_of(method)))

    whats = [(entry.what, entry.result) for entry in node.entries]
    assert whats == ([(AUDITED[method], "done")] if method in AUDITED else [])


@pytest.mark.parametrize("method", AUDITED)
@pytest.mark.parametrize(
    ("error", "result"),
    [
        (NotAllowedError("no"), "refused"),
        (NotFoundError("none"), "failed"),
        (OSError("disk"), "failed"),
    ],
)
def test_each_is_written_once_when_it_is_not(
    method: str, error: Exception, result: str
) -> None:
    node = service(error)

    with pytest.raises(type(error)):
        asyncio.run(call(node, method, request_of(method)))

    [entry] = node.entries
    assert (entry.what, entry.result) == (AUDITED[method], result)
    assert str(error) in entry.because


def test_an_entry_says_who_and_whose_and_from_where() -> None:
    node = service()

    async def ask() -> None:
        came_by(Origin("certificate", "n7", "ann", "10.0.0.7"))
        await call(node, "Logs", pb.LogsRequest(job="bobs"))
        await call(node, "Cancel", pb.CancelRequest(job="anns"))

    asyncio.run(ask())

    read, cancelled = node.entries
    assert (read.node, read.owner, read.address) == ("n7", "ann", "10.0.0.7")
    assert (read.job, read.of, read.uid) == ("bobs", "bob", None)
    assert (cancelled.job, cancelled.of) == ("anns", "")


def test_no_value_of_a_secret_and_no_invitation_is_written() -> None:
    node = service()

    async def ask() -> None:
        await call(node, "SetSecret", pb.SetSecretRequest(name="TOKEN", value="s3cret"))
        await call(node, "Invite", pb.InviteRequest(role="worker", uses=2, ttl_s=60))

    asyncio.run(ask())

    secret, invited = node.entries
    assert "s3cret" not in str(secret)
    assert secret.target == "TOKEN"
    assert invited.because == "as worker, 2 times, for 60 s"


def test_who_is_refused_at_the_door_is_written_down_of_every_call() -> None:
    entries: list[AuditEntry] = []

    for method in METHODS:
        refused(entries.append, method, Origin("token", address="10.0.0.9"), "no token")

    assert {entry.result for entry in entries} == {"refused"}
    assert len(entries) == len(METHODS)
