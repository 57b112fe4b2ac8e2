"""The command line of a sandbox; whether it holds is in tests/integration."""

import os
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from shoal.drivers.sandbox import names, seccomp
from shoal.drivers.sandbox.bubblewrap import (
    TASK_UID_FIRST,
    Box,
    Sandbox,
    hidden,
    program_missing,
)
from shoal.drivers.sandbox.furnisher import SHOWN
from shoal.drivers.sandbox.mounts import BASE
from shoal.drivers.sandbox.rooms import SLEEPER

PLAIN = Sandbox(bwrap="/usr/bin/bwrap", prlimit="/usr/bin/prlimit")
ROOT = msgspec.structs.replace(PLAIN, setpriv="/usr/bin/setpriv")


def test_a_task_has_no_network_unless_it_asks() -> None:
    without = PLAIN.argv(Box(directory="/d"), ["true"])
    with_it = PLAIN.argv(Box(directory="/d", network=True), ["true"])

    assert "--unshare-all" in without
    assert "--share-net" not in without
    assert "--share-net" in with_it


def test_localhost_and_its_own_name_resolve_in_every_sandbox(tmp_path: Path) -> None:
    found = names.write(tmp_path)
    hosts = {reach: Path(dict(files)["/etc/hosts"]) for reach, files in found.items()}

    for each in hosts.values():
        lines = [line.split() for line in each.read_text().splitlines()]
        assert ["127.0.0.1", "localhost"] in lines
        assert any(line[1:2] == ["shoal"] for line in lines)
    assert "/etc/resolv.conf" not in dict(found["none"])
    assert hosts["none"].read_text().count("\n") == 3, "names of the machine"
    for sandbox in (PLAIN, ROOT):
        argv = sandbox.argv(Box(directory="/d", names=found["none"]), ["true"])
        assert "/etc/hosts" in argv
        assert str(hosts["none"]) in argv


def test_everything_but_the_work_directory_and_the_socket_is_read_only() -> None:
    argv = PLAIN.argv(Box(directory="/d", socket="/s", readable=("/data",)), ["true"])

    writable = [after for before, after in pairwise(argv) if before == "--bind"]
    assert writable == ["/d", "/s"]
    assert ("--ro-bind-try", "/data") in pairwise(argv)
    assert ("--remount-ro", "/") in pairwise(argv)
    assert {"--new-session", "--die-with-parent", "--disable-userns"} <= set(argv)


def test_a_task_gets_the_files_of_its_devices() -> None:
    argv = PLAIN.argv(Box(directory="/d", devices=("/dev/nvidia1",)), ["true"])

    devices = [after for before, after in pairwise(argv) if before == "--dev-bind-try"]
    assert devices == ["/dev/nvidia1"]


def test_words_of_a_command_stay_words() -> None:
    words = ["prog", "--bind", "/ /", "$HOME"]

    argv = PLAIN.argv(Box(directory="/d"), words)

    assert argv[-6:] == ["--nproc=4096", "--", *words]


def test_a_node_that_is_root_gives_each_slot_a_uid() -> None:
    argv = ROOT.argv(Box(directory="/root/x/work", socket="/root/s", slot=3), ["true"])

    uid = str(TASK_UID_FIRST + 3)
    assert argv.count("/usr/bin/bwrap") == 2
    assert ("--reuid", uid) in pairwise(argv)
    assert ("--regid", uid) in pairwise(argv)
    assert argv.count("--die-with-parent") == 2
    assert "/root/x/work" not in argv[argv.index("/usr/bin/setpriv") :]
    assert (ROOT.uid_of(3), PLAIN.uid_of(3)) == (TASK_UID_FIRST + 3, None)


def test_what_only_root_can_reach_is_mounted_where_the_task_can() -> None:
    argv = ROOT.argv(Box(directory="/d", readable=("/root/py", "/opt/x")), ["true"])

    inner = argv[argv.index("/usr/bin/setpriv") :]
    first = inner.index("/root/py")
    place = inner[first - 1]
    assert inner[first - 2] == "--ro-bind-try"
    assert ("/root/py", place) in pairwise(argv[: argv.index("/usr/bin/setpriv")])
    assert inner.index("/opt/x") > first


def test_what_is_not_isolated_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    bare = msgspec.structs.replace(PLAIN, prlimit="", closed=False)
    stays = msgspec.structs.replace(PLAIN, stays=True)

    assert len(stays.not_isolated) == 1
    assert any("where its folders lie" in said for said in PLAIN.not_isolated)
    assert any("no prlimit" in said for said in bare.not_isolated)

    monkeypatch.setattr(seccomp, "PROGRAM", b"")  # as on another kind of machine
    assert any("not filtered" in said for said in stays.not_isolated)
    assert any("namespaces of its own" in said for said in bare.not_isolated)

    monkeypatch.setattr(seccomp, "PROGRAM", b"filter")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert any("tasks are root" in said for said in PLAIN.not_isolated)
    assert len(msgspec.structs.replace(ROOT, stays=True).not_isolated) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sh", None),
        ("/bin/sh", None),
        ("./tool", None),
        ("/job/tool", None),
        ("bin/../tool", None),
        ("nope", "no such program in the sandbox: 'nope'"),
        ("./data", "not executable: './data'"),
        ("/etc/passwd", "no such program in the sandbox: '/etc/passwd'"),
        ("../../bin/sh", None),  # which is /bin/sh, as in any folder
        ("/shown/tool", "no such program in the sandbox: '/shown/tool'"),
    ],
)
def test_a_program_is_looked_for_where_a_sandbox_has_it(
    tmp_path: Path, name: str, reason: str | None
) -> None:
    (tmp_path / "bin").mkdir()
    for file, mode in (("tool", 0o755), ("data", 0o644)):
        (tmp_path / file).write_text("", encoding="ascii")
        (tmp_path / file).chmod(mode)

    assert program_missing(name, "/usr/bin:/bin", tmp_path) == reason


# Sandboxes that stay.


def test_a_sandbox_that_stays_holds_no_work_of_a_task_and_no_program() -> None:
    argv = ROOT.room(Box(directory="/root/tasks", socket="/root/s", slot=3))

    inner = argv[argv.index("/usr/bin/setpriv") :]
    assert argv[-2:] == ["--", SLEEPER]
    assert "/root/tasks" not in argv
    assert ("--dir", "/job") in pairwise(inner)
    assert ("--remount-ro", "/") in pairwise(inner)
    assert {"--unshare-all", "--new-session", "--die-with-parent"} <= set(inner)


def test_who_is_not_root_keeps_work_directories_where_tasks_enter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    argv = PLAIN.room(Box(directory="/d"))

    assert [argv[n + 1 : n + 3] for n, a in enumerate(argv) if a == "--bind"] == [
        ["/d", BASE]
    ]


def test_what_tmp_would_hide_is_kept_elsewhere_for_those_who_enter() -> None:
    box = Box(directory="/d", readable=("/opt/x", "/tmp/y", "/tmpz"))

    argv = ROOT.room(box)

    assert hidden(box.readable) == ["/tmp/y"]
    assert hidden(["/tmp/y", "/x", "/tmp/y"]) == ["/tmp/y"], "mounted twice"
    inner = argv[argv.index("/usr/bin/setpriv") :]
    assert f"{SHOWN}/0" in inner
    assert {"/opt/x", "/tmpz"} <= set(inner)
    assert "/tmp/y" not in inner
