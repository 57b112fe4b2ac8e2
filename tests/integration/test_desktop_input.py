"""Who uses a desktop comes first, as logind tells over D-Bus."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import homes
from tests.integration.fake_logind import DAEMON, FakeLogind, logind, own_bus
from tests.integration.live_shoal import eventually, promised

from shoal.runtime.lending.desktop_input import DesktopInput, LatestInput
from shoal.runtime.lending.system_bus import ADDRESS, BusError, BusReader, SystemBus

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(DAEMON is None, reason="dbus-daemon is not installed"),
]
YIELD_S = 2.0


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with own_bus(tmp_path) as path:
        monkeypatch.setenv(ADDRESS, f"unix:path={path},guid=0")
        yield path


@pytest.fixture
def fake(bus: Path) -> Iterator[FakeLogind]:
    with logind(bus) as found:
        yield found


@pytest.fixture
def desktop() -> Iterator[DesktopInput]:
    found = DesktopInput()
    yield found
    found.close()


def us_ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1e6)


def test_a_desktop_is_used_until_it_is_idle_or_locked(
    fake: FakeLogind, desktop: DesktopInput
) -> None:
    nobody = desktop.latest()
    fake.desktop()
    used = desktop.latest()
    fake.desktop(IdleHint=("b", True), IdleSinceHint=("t", us_ago(90)))
    idle = desktop.latest()
    fake.desktop(LockedHint=("b", True))
    locked = desktop.latest()
    time.sleep(0.05)
    locked_longer = desktop.latest()
    fake.desktop()

    assert nobody is None
    assert used == LatestInput(0.0, "the desktop at seat0")
    assert idle is not None
    assert 90 <= idle.idle_s < 95
    assert locked is not None
    assert locked_longer is not None
    assert 0.05 <= locked_longer.idle_s - locked.idle_s < 1
    assert desktop.latest() == used


@pytest.mark.parametrize(
    "changes",
    [
        {"Type": ("s", "tty")},  # Its device tells more exactly.
        {"Class": ("s", "greeter")},
        {"Active": ("b", False)},  # Another user's is shown.
        {"State": ("s", "closing")},
    ],
)
def test_only_a_desktop_that_is_shown_to_its_user_counts(
    fake: FakeLogind, desktop: DesktopInput, changes: dict[str, tuple[str, Any]]
) -> None:
    fake.desktop("1", **changes)

    assert desktop.latest() is None

    fake.desktop("2")  # Of several, the one that was used last counts.
    assert desktop.latest() == LatestInput(0.0, "the desktop at seat0")


def test_a_session_that_ends_meanwhile_hides_no_other(
    fake: FakeLogind, desktop: DesktopInput
) -> None:
    fake.desktop("1")
    fake.desktop("2")
    fake.gone.add(next(iter(fake.sessions)))

    assert desktop.latest() == LatestInput(0.0, "the desktop at seat0")


def test_without_logind_nothing_is_seen_and_one_that_restarts_is_asked_again(
    bus: Path, desktop: DesktopInput
) -> None:
    none = desktop.latest()  # The bus is there, and nobody has the name.
    with logind(bus) as fake:
        fake.desktop()
        first = desktop.latest()
    between = desktop.latest()
    with logind(bus) as fake:
        fake.desktop()
        second = desktop.latest()

    assert none is between is None
    assert first == second == LatestInput(0.0, "the desktop at seat0")


@pytest.mark.parametrize("address", ["tcp:host=a", "unix:path=/nowhere/at/all"])
def test_a_bus_that_is_not_there_is_not_asked_at_every_look(
    monkeypatch: pytest.MonkeyPatch, desktop: DesktopInput, address: str
) -> None:
    monkeypatch.setenv(ADDRESS, address)

    with pytest.raises(BusError):
        SystemBus()
    assert desktop.latest() is None
    monkeypatch.setattr(SystemBus, "__init__", None)
    assert desktop.latest() is None


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("s", b"\xff\xff\0\0abc"),
        ("as", b"\xff\xff\0\0"),
        ("v", b"\x02ss\0"),
        ("v" * 1, b"\x01v\0" * 60),
        ("t", b"\0\0"),
        ("z", b"\0"),
        ("(s", b"\0\0\0\0\0"),
    ],
)
def test_what_is_not_valid_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(BusError):
        BusReader(data, "<").values(kind)


def test_tasks_of_others_go_when_somebody_uses_the_desktop(
    fake: FakeLogind, tmp_path: Path
) -> None:
    fake.desktop()
    pids = tmp_path / "pids"
    with homes(tmp_path / "homes") as make:
        lender, guest = make("lender"), make("guest")
        lender.env[ADDRESS] = os.environ[ADDRESS]
        rule = ("--lend", "away:10s", "--owner-input", "desktop", "--strangers", "any")
        lender.up("--port", "0", "--listen", "127.0.0.1:0", "--no-sandbox", *rule)
        invitation = lender.ok("invite", "-q", "--owner", "guest").strip()
        guest.ok("join", invitation, "--no-up", "--wait", "20s")
        guest.up("--port", "0", "--no-worker")
        eventually(lambda: len(guest.json("nodes")["nodes"]) == 2)
        command = f"echo $$ >> {pids}; exec sleep 300"
        job = guest.ok("submit", "-q", "--", "sh", "-c", command).strip()
        sign = "the owner is using the machine: input at the desktop at seat0 0 s ago"
        eventually(lambda: lender.json("nodes")["nodes"][0]["lending"] == sign)
        assert not pids.exists()

        def owner_returns() -> float:
            count = len(pids.read_text().split()) if pids.exists() else 0
            fake.desktop(IdleHint=("b", True), IdleSinceHint=("t", us_ago(60)))
            eventually(lambda: pids.exists() and len(pids.read_text().split()) > count)
            latest = int(pids.read_text().split()[-1])
            eventually(lambda: os.sched_getscheduler(latest) == os.SCHED_IDLE)
            fake.desktop()
            return eventually(lambda: not Path(f"/proc/{latest}").exists())

        promised(owner_returns, YIELD_S, tries=2)
        guest.ok("cancel", job)
