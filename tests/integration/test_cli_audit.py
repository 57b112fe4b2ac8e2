"""What is done at a node is in its audit log, whichever door it came by."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome

from shoal.api.client.client import Client
from shoal.errors import NotAllowedError

MEMBER = "12D3KooWBmAwcd4PJNJvfV89HwE48nwkRmAgo8Vy3uQEyNNHBox2"
pytestmark = pytest.mark.integration


def test_what_is_done_at_a_node_is_written_down(tmp_path: Path) -> None:
    home = CliHome(tmp_path / "home")
    try:
        home.up("--web", "127.0.0.1:0")
        job = home.ok("submit", "--name", "fish", "--", "echo", "hi").strip()
        home.ok("wait", job)
        home.ok("logs", job)
        assert home("secret", "set", "TOKEN", typed="s3cret\n").code == 0
        home.ok("invite", "--role", "worker")
        home.ok("revoke", MEMBER)
        web = home.json("up", "--background")["web"]
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{web}/api/jobs")
        api = home.info["api"]
        home.ok("cancel", job, "--node", api)
        stranger = Client(api, name="n", token="wrong")
        with stranger as client, pytest.raises(NotAllowedError):
            client.jobs()
        home.ok("down")
        found = home.json("audit")["entries"]
    finally:
        home.close()

    whats = [(one["what"], one["result"]) for one in found]
    assert whats == [
        ("up", "done"),
        ("submit", "done"),
        ("read-output", "done"),
        ("secret-set", "done"),
        ("invite", "done"),
        ("revoked", "done"),
        ("revoke", "done"),
        ("page /api/jobs", "refused"),
        ("cancel", "done"),
        ("list", "refused"),
        ("shutdown", "done"),
        ("down", "done"),
    ]
    assert [one["job"] for one in found if one["job"]] == [job, job, job]
    assert found[7]["address"] == "127.0.0.1"
    assert [one["way"] for one in found[8:10]] == ["socket", "token"]
    assert found[9]["address"].startswith("127.0.0.1")
    assert "s3cret" not in json.dumps(found)
    assert "not confined" not in found[0]["because"]
    assert home("audit", "--verify").code == 0
