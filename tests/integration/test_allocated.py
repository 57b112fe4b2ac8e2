"""A node whose machine is only allocated for a time, as by a cluster."""

from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration


def test_an_allocated_worker_takes_what_ends_in_time_and_ends_when_idle(
    tmp_path: Path,
) -> None:
    """Its job that would take too long waits for another worker, and says so."""
    with homes(tmp_path) as make:
        boss, pilot = make("boss"), make("pilot")
        boss.up("--port", "0", "--listen", "127.0.0.1:0", "--no-worker")
        invitation = boss.ok("invite", "-q", "--mine").strip()
        pilot.ok("join", invitation, "--no-up", "--wait", "60s")
        times = ("--time-limit", "10m", "--idle-timeout", "3s")
        pilot.up("--port", "0", "--no-sandbox", *times)
        pid = pilot.info["pid"]
        eventually(lambda: len(boss.json("nodes")["nodes"]) == 2)

        long = boss.ok("submit", "-q", "--time-limit", "1h", "--", "true").strip()
        assert boss("run", "--time-limit", "1m", "--", "true").code == 0
        why = boss.ok("explain", long)
        pilot.wait_for_end(pid)

        assert "1h10s" in why
        assert "the most is 8m" in why
        assert "nobody needed it" in _log(pilot)
        assert boss.json("show", long)["job"]["state"] == "waiting"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--time-limit", "0s"), "--time-limit 0s is too short"),
        (("--idle-timeout", "1x"), "1x"),
        (("--time-limit", "1h", "--no-worker"), "--time-limit with --no-worker"),
    ],
)
def test_a_wrong_time_is_refused(
    tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    with homes(tmp_path) as make:
        done = make("a")("up", *flags)

    assert done.code == 2
    assert said in done.err
    assert "why:" in done.err


def _log(home: CliHome) -> str:
    return (home.path / "node.log").read_text(encoding="utf-8")
