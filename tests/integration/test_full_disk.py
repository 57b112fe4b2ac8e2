"""A node whose disk is filled by what a job writes."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration

DISK = "size=6m"
MANY_BYTES = 20_000_000


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", DISK, "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine mounts no small disk")
    try:
        with homes(disk) as make:
            yield make("one")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_job_that_fills_the_disk_with_its_output_does_not_end_the_node(
    home: CliHome,
) -> None:
    pid = home.json("up", "--background")["pid"]
    script = f"head -c {MANY_BYTES} /dev/zero | tr '\\0' x; echo end >&2"

    loud = home("run", "--", "sh", "-c", script)
    quiet = home("run", "--", "true")

    assert loud.code == quiet.code == 0
    assert 0 < len(loud.out) < MANY_BYTES
    assert "(exit 0): its output is cut: the disk of the node is full" in loud.err
    assert home.info["pid"] == pid
    assert [job["state"] for job in home.json("ps")["jobs"]] == ["done", "done"]


def test_a_node_whose_journal_finds_no_room_says_so_and_goes_on_later(
    home: CliHome,
) -> None:
    home.ok("up", "--background", "--no-sandbox", "--no-web", "--without", "p2p", "-q")
    pid = home.info["pid"]
    filler = home.path / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))

    job = home.ok("submit", "-q", "--array", "0-299", "--", "true").strip()
    home.wait_for_end(pid)
    said = (home.path / "node.log").read_text()
    filler.unlink()
    home.up("--no-sandbox", "--no-web", "--without", "p2p", "-q")

    assert "disk is full" in said
    assert home.json("show", job)["job"]["id"] == job
