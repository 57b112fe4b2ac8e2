"""What the page answers."""

import gzip
import json
import re
from importlib.resources import files
from typing import Any

import pytest
from reference.answers import ANSWERS, OBJECTS, breaches
from tests.unit.web.fake_node import FakeService, make_page
from tests.unit.web.visits import body_of, head_of, request, said, status

from shoal.api import shoal_pb2 as pb

STATIC = files("shoal.web").joinpath("static")
NAMES = sorted(file.name for file in STATIC.iterdir())


def ask(path: str, service: FakeService | None = None) -> dict[str, Any]:
    answer = said(request(path), make_page(service or FakeService()))
    assert status(answer) == 200, answer
    document: dict[str, Any] = json.loads(body_of(answer))
    return document


def order(path: str, body: object, service: FakeService) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = said(request(path, "POST", data), make_page(service))
    return status(answer), json.loads(body_of(answer))


# Files.


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_the_page_is_served_with_its_type(name: str) -> None:
    answer = said(request(f"/static/{name}", token=None))

    assert status(answer) == 200
    assert body_of(answer) == STATIC.joinpath(name).read_bytes()
    kind = {"js": "javascript", "css": "css", "html": "html", "svg": "svg"}
    assert kind[name.rpartition(".")[2]] in head_of(answer).split("content-type: ")[1]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../site.py",
        "/static/..%2fsite.py",
        "/static/%2e%2e/site.py",
        "/static/....//site.py",
        "/static//etc/passwd",
        "//etc/passwd",
        "/static/",
        "/static",
        "/static/main.js%00",
        "/jobs/../static/main.js",
        "/jobs/a/b",
        "/jobs/",
        "/site.py",
        "/nowhere",
        "*",
        "http://127.0.0.1/static/../site.py",
    ],
)
def test_no_other_file_can_be_had(path: str) -> None:
    answer = said(request(path))

    assert status(answer) == 404
    assert b"import" not in body_of(answer)


def test_files_can_only_be_read() -> None:
    answer = said(request("/static/main.js", "DELETE"))

    assert status(answer) == 405


def test_the_page_brings_everything_along_and_has_no_script_inside() -> None:
    text = STATIC.joinpath("index.html").read_text()

    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"\son\w+=|style=", text) == []
    for name in NAMES:
        found = STATIC.joinpath(name).read_text()
        links = re.findall(r"https?://[^\s\"'`)]+", found)
        assert [link for link in links if "w3.org/" not in link] == []
    for name in re.findall(r"/static/([\w.]+)", text):
        assert name in NAMES


def test_files_come_compressed_to_who_takes_that_and_all_scripts_at_once() -> None:
    answer = said(request("/static/style.css", accept_encoding="br, gzip"))
    index = STATIC.joinpath("index.html").read_text()
    scripts = {name for name in NAMES if name.endswith(".js")} - {"main.js"}

    assert "content-encoding: gzip" in head_of(answer)
    data = STATIC.joinpath("style.css").read_bytes()
    assert gzip.decompress(body_of(answer)) == data
    assert len(body_of(answer)) < len(data) / 2
    assert set(re.findall(r'modulepreload" href="/static/([\w.]+)', index)) == scripts


def test_a_body_of_the_wrong_kind_is_answered_in_words() -> None:
    code, told = order("/api/jobs/abc/cancel", {"reason": 5}, FakeService())

    assert code == 400
    assert told["error"]["what"] == "expected text, got a whole number - at `$.reason`"


def test_no_text_ever_becomes_markup() -> None:
    for name in NAMES:
        text = STATIC.joinpath(name).read_text()
        words = (
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\("
        )
        assert re.findall(words, text) == [], name


# What is asked.


def test_documents_are_those_of_the_command_line() -> None:
    job, nodes = ask("/api/jobs/abc"), ask("/api/nodes")

    assert breaches(ANSWERS["show"], job) == []
    assert breaches(ANSWERS["nodes"], nodes) == []
    assert breaches(ANSWERS["ps"], ask("/api/jobs")) == []
    assert breaches(ANSWERS["explain"], ask("/api/jobs/abc/explain")) == []
    for event in ask("/api/events")["events"]:
        assert breaches(ANSWERS["events"], event) == []
    assert breaches(OBJECTS["job"], job["job"]) == []
    assert job["job"]["name"] == "<b>bold</b>"


def test_a_figure_that_is_no_number_is_null() -> None:
    service = FakeService()
    service.job.tasks[0].metrics["loss"] = float("nan")

    [task] = ask("/api/jobs/abc", service)["tasks"]

    assert task["metrics"] == {"loss": None}


def test_a_job_that_is_not_there_is_said() -> None:
    for path in ("/api/jobs/nope", "/api/stream?job=nope"):
        answer = said(request(path))

        assert status(answer) == 404
        error = json.loads(body_of(answer))["error"]
        assert error["what"] == "no job 'nope'"
        assert error["hint"]


def test_a_node_is_shown_with_what_its_machine_uses() -> None:
    service = FakeService()

    found = ask("/api/nodes/calm-heron-01?since_s=12.9", service)

    assert breaches(OBJECTS["node"], found["node"]) == []
    assert found["history"][0]["cpu_milli"] == 700
    assert found["tasks"][0]["scheduler"]["petname"] == "calm-heron-01"
    assert service.asked == [pb.InspectRequest(node="calm-heron-01", since_s=12)]


def test_curves_of_a_job_can_be_compared_with_those_of_others() -> None:
    found = ask("/api/jobs/abc/curves")

    assert found == {"abc.main.0": {"loss": [[5.0, 7.0, 2.0]]}}


# What is done.


def test_a_job_is_submitted_under_the_id_that_was_drawn() -> None:
    service = FakeService()

    code, reply = order("/api/jobs", {"spec": "command: x", "job_id": "q7"}, service)

    assert code == 200
    assert reply["notes"] == ["mind the gap"]
    assert service.asked == [pb.SubmitRequest(job_id="q7", yaml="command: x")]


def test_a_job_is_planned_cancelled_and_run_again() -> None:
    service = FakeService()

    _, plan = order("/api/plan", {"spec": "command: x"}, service)
    _, ended = order("/api/jobs/abc/cancel", {"reason": "wrong lr"}, service)
    code, refused = order("/api/jobs/abc/retry", {"job_id": "q8"}, service)

    assert breaches(ANSWERS["plan"], plan) == []
    assert ended["job"]["id"] == "abc"
    assert code == 409
    assert refused["error"]["because"] == "it would run twice"
    assert service.asked == [
        pb.PlanRequest(yaml="command: x"),
        pb.CancelRequest(job="abc", reason="wrong lr"),
        pb.RetryRequest(job="abc", job_id="q8"),
    ]


def test_a_node_that_is_away_is_forgotten() -> None:
    service = FakeService()

    code, reply = order("/api/forget", {"node": "n9"}, service)

    assert (code, reply["forgotten"]["id"]) == (200, "n9")
    assert service.asked == [pb.ForgetRequest(node="n9")]


def test_who_asks_to_join_is_let_in_or_not() -> None:
    service = FakeService()

    code, reply = order("/api/accept", {"node": "n9", "code": "elk-ape-42"}, service)
    order("/api/accept", {"node": "n8", "decline": True}, service)

    assert (code, reply["node"]["id"]) == (200, "n9")
    assert service.asked == [
        pb.AcceptRequest(node="n9", code="elk-ape-42"),
        pb.AcceptRequest(node="n8", decline=True),
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/accept", {}),
        ("/api/forget", {}),
        ("/api/downloads", {}),
        ("/api/downloads", {"job": "abc", "path": "x" * 4_000}),
        ("/api/jobs", {}),
        ("/api/jobs", {"spec": "x", "job_id": "../x"}),
        ("/api/jobs", {"spec": 7, "job_id": "x"}),
        ("/api/jobs", {"spec": "x", "job_id": "x", "more": 1}),
        ("/api/jobs", b"not json"),
        ("/api/jobs", b"[" * 100_000),
        ("/api/jobs/abc/cancel", {"reason": "x" * 2_000}),
        ("/api/jobs/abc/retry", {"failed_only": True}),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(path: str, body: object) -> None:
    service = FakeService()

    code, reply = order(path, body, service)

    assert code == 400
    assert reply["error"]["hint"]
    assert service.asked == []


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/jobs/abc/cancel", "GET"),
        ("/api/info", "POST"),
        ("/api/plan", "PUT"),
        ("/api/stream", "OPTIONS"),
    ],
)
def test_each_answer_has_its_own_method(path: str, method: str) -> None:
    body = b"{}" if method != "GET" else b""

    assert status(said(request(path, method, body))) == 405


def test_a_stream_has_no_head_of_its_own() -> None:
    answer = said(request("/api/stream", "HEAD"))

    assert status(answer) == 405
    assert body_of(answer) == b""
