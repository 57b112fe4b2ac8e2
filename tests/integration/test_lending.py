"""A machine is lent while its owner is away, and offers only what is free."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually, promised

pytestmark = pytest.mark.integration

GIB = 1 << 30
YIELD_S = 2.0
HOARD = f"x = bytearray({GIB})\nprint(flush=True)\ninput()\n"


class Lent(NamedTuple):
    """A machine whose owner touches a file, and a member of another owner."""

    lender: CliHome
    guest: CliHome
    touched: Path

    def leave(self, ago_s: float = 3_600.0) -> None:
        """Let the owner have left so long ago."""
        at = time.time() - ago_s
        os.utime(self.touched, (at, at))

    @property
    def here(self) -> dict[str, Any]:
        """What the lender says of itself."""
        found: dict[str, Any] = self.lender.json("nodes")["nodes"][0]
        return found


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lent]:
    folder = tmp_path_factory.mktemp("lent")
    touched = folder / "touched"
    touched.touch()
    with homes(folder) as make:
        lender, guest = make("lender"), make("guest")
        rule = (
            "--lend",
            "away:10s",
            "--owner-input",
            str(touched),
            "--strangers",
            "any",
        )
        lender.up("--port", "0", "--listen", "127.0.0.1:0", "--no-sandbox", *rule)
        invitation = lender.ok("invite", "-q", "--owner", "guest").strip()
        guest.ok("join", invitation, "--no-up", "--wait", "20s")
        guest.up("--port", "0", "--no-worker")
        eventually(lambda: len(guest.json("nodes")["nodes"]) == 2)
        yield Lent(lender, guest, touched)


def reason(home: CliHome, job: str) -> str:
    """Return what a job's task waits for, or last ended of."""
    return str(home.json("show", job)["tasks"][0]["reason"])


def test_tasks_of_others_go_when_the_owner_comes_and_return_when_the_owner_is_away(
    lent: Lent, tmp_path: Path
) -> None:
    lent.touched.touch()
    eventually(lambda: "touched" in lent.here["lending"])
    pids, own_pids = tmp_path / "pids", tmp_path / "own"
    command = "echo $$ >> {}; exec sleep 300"
    job = lent.guest.ok("submit", "-q", "--", "sh", "-c", command.format(pids)).strip()
    own = lent.lender.ok("submit", "-q", "--", "sh", "-c", command.format(own_pids))
    eventually(own_pids.exists)  # The owner's own jobs run all the same.
    rejected = lent.guest.json("explain", job)["tasks"][0]["rejected"]
    assert [each["reason"] for each in rejected] == ["the owner is using the machine"]
    assert not pids.exists()

    def owner_returns() -> float:
        """Let the owner leave and come back; return how long a task of others ran."""
        count = len(pids.read_text().split()) if pids.exists() else 0
        lent.leave()
        eventually(lambda: pids.exists() and len(pids.read_text().split()) > count)
        latest = int(pids.read_text().split()[-1])
        lent.touched.touch()
        gone_s = eventually(lambda: not Path(f"/proc/{latest}").exists())
        assert Path(f"/proc/{int(own_pids.read_text())}").exists()
        return gone_s

    promised(owner_returns, YIELD_S, tries=3)
    eventually(lambda: "preempted" in reason(lent.guest, job))
    assert "the owner is using the machine" in reason(lent.guest, job)
    lent.guest.ok("cancel", job)
    lent.lender.ok("cancel", own.strip())


def test_memory_that_a_program_takes_is_not_offered_until_it_ends(lent: Lent) -> None:
    """Other programs come and go meanwhile, so what is withheld follows them all."""

    def beyond() -> float:
        """Return how much more is withheld than is in use."""
        there, memory = lent.here, psutil.virtual_memory()
        return float(
            there["withheld"]["memory_bytes"] - memory.total + memory.available
        )

    eventually(lambda: abs(beyond()) < GIB // 2)
    with subprocess.Popen(
        [sys.executable, "-c", HOARD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        eventually(lambda: beyond() > -GIB // 2)
        there = lent.here
        assert "of memory taken by programs that are not tasks" in there["taken"]
        size, free = (there[part]["memory_bytes"] for part in ("total", "free"))
        assert free <= size - there["withheld"]["memory_bytes"]
        program.communicate(b"\n")
    eventually(lambda: beyond() < GIB // 2)
