"""Only whoever has the token is answered, and only where the page itself asks."""

import json

import pytest
from tests.unit.web.fake_node import TOKEN
from tests.unit.web.visits import body_of, request, said, status

from shoal.api.server.http_app import RefusalError
from shoal.core.durability.audit_chain import AuditEntry
from shoal.web.site import Guard

GUARDED = ("/api/info", "/api/nodes", "/api/jobs", "/api/stream", "/api/nowhere")


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], f"{TOKEN}x"])
def test_without_the_token_nothing_is_said(path: str, token: str | None) -> None:
    answer = said(request(path, token=token))

    assert status(answer) == 401
    assert TOKEN.encode() not in answer
    assert json.loads(body_of(answer))["error"]["kind"] == "not-allowed"


@pytest.mark.parametrize(
    "shown", [TOKEN, f"Basic {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN}"]
)
def test_the_token_is_shown_in_one_way_only(shown: str) -> None:
    answer = said(request("/api/info", token=None, authorization=shown))

    assert status(answer) == 401


def test_a_token_in_the_address_or_a_cookie_is_none() -> None:
    target = f"/api/info?token={TOKEN}"

    answer = said(request(target, token=None, cookie=f"shoal-token={TOKEN}"))

    assert status(answer) == 401


def test_the_files_of_the_page_need_no_token() -> None:
    for path in ("/", "/jobs/abc", "/submit", "/static/main.js", "/static/style.css"):
        assert status(said(request(path, token=None))) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7420", "127.0.0.1.evil.example", "10.0.0.7"]
)
@pytest.mark.parametrize("path", ["/", "/api/info"])
def test_a_name_that_leads_here_is_refused_even_with_the_token(
    host: str, path: str
) -> None:
    assert status(said(request(path, host=host))) == 421


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:7420", "LOCALHOST:1", "[::1]:7420"]
)
def test_this_machine_has_several_names(host: str) -> None:
    assert status(said(request("/api/info", host=host))) == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:9999",
        "http://127.0.0.1",
        "null",
        "",
        "http://127.0.0.1:7420.evil.example",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_another_page_asks_is_refused_even_with_the_token(
    origin: str, method: str
) -> None:
    body = b"{}" if method == "POST" else b""

    answer = said(request("/api/jobs/abc/cancel", method, body, origin=origin))

    assert status(answer) == 403


def test_what_the_page_itself_asks_is_answered() -> None:
    origin = "http://127.0.0.1:7420"

    assert status(said(request("/api/info", origin=origin))) == 200


def test_a_browser_that_asks_for_leave_gets_none() -> None:
    asked = request(
        "/api/jobs",
        "OPTIONS",
        origin="http://127.0.0.1:7420",
        access_control_request_method="POST",
    )

    answer = said(asked)

    assert status(answer) == 405
    assert b"Access-Control-Allow" not in answer


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_could_send_is_refused(kind: str) -> None:
    answer = said(request("/api/jobs/abc/cancel", "POST", b"{}", content_type=kind))

    assert status(answer) == 415


def _check(host: str, asked: str) -> int:
    """Return the status with which a page on `host` answers to the name `asked`."""
    headers = [
        (b"host", asked.encode()),
        (b"authorization", f"Bearer {TOKEN}".encode()),
    ]
    scope = {"method": "GET", "path": "/api/info", "headers": headers}
    noted: list[AuditEntry] = []
    try:
        Guard(lambda: TOKEN, host, noted.append).check(scope)
    except RefusalError as refusal:
        return refusal.status
    return 200


def test_a_page_for_others_answers_to_addresses_and_not_to_names() -> None:
    assert _check("0.0.0.0", "10.0.0.7:7420") == 200
    assert _check("::", "[fd00::7]:7420") == 200
    assert _check("reef.example", "reef.example:7420") == 200
    assert _check("0.0.0.0", "evil.example:7420") == 421
    assert _check("127.0.0.1", "10.0.0.7:7420") == 421
