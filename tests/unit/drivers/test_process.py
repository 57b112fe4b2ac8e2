"""The parts of the process driver that need no process."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.unit.drivers.orders import order

from shoal.drivers import RunOrder
from shoal.drivers.process import cut, outcome_of, unfit
from shoal.drivers.supervisor.supervisors import AttemptEnd
from shoal.drivers.workdirs import Workdirs, hand_over
from shoal.model.ids import NodeId
from shoal.model.text.bounds import TEXT_LENGTH_MAX

UNFIT_NUL = "cannot be used: a text contains a NUL byte"
UNFIT_NAME = "the name of a variable is empty or contains '=' or a line break"


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (order(), "there is no program to run"),
        (order("a\0b"), f"an argument {UNFIT_NUL}"),
        (order("a", setup=("\0",)), f"an argument {UNFIT_NUL}"),
        (order("a", env={"A": "\0"}), f"a variable {UNFIT_NUL}"),
        (order("a", env={"A\0": ""}), f"the name of a variable {UNFIT_NUL}"),
        (order("a", secrets=("K",), given={"K": "\0"}), f"a secret {UNFIT_NUL}"),
        (order("a", recipe="x\0y"), f"the name of a recipe {UNFIT_NUL}"),
        (order("a", addresses=("\0",)), f"the address of a node {UNFIT_NUL}"),
        (
            order("\ud800"),
            "an argument cannot be used: a text holds half of a character",
        ),
        (order("a", env={"A=B": ""}), UNFIT_NAME),
        (order("a", env={"": ""}), UNFIT_NAME),
        (order("a", env={"A\nB": ""}), UNFIT_NAME),
        (order("a", secrets=("K=",), given={"K=": ""}), UNFIT_NAME),
        (order("a", secrets=("K",)), "the worker was not given secret 'K'"),
        (order("a", index=2, addresses=("x", "y")), "rank 2 of a gang of 2"),
        (order("a"), None),
    ],
)
def test_an_order_that_no_machine_can_carry_out_is_refused(
    one: RunOrder, reason: str | None
) -> None:
    assert unfit(one) == reason


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ("id", "the id of a task"),
        ("job", "the id of a task"),
        ("group", "the id of a task"),
    ],
)
def test_an_id_with_a_nul_is_refused(field: str, what: str) -> None:
    one = order("a")
    task = msgspec.structs.replace(one.task, **{field: "t\0/bin/sh"})

    bad = msgspec.structs.replace(one, task=task)

    assert unfit(bad) == f"{what} {UNFIT_NUL}"


def test_a_checkpoint_and_a_scheduler_with_a_nul_are_refused() -> None:
    one = order("a")
    attempt = msgspec.structs.replace(one.attempt, scheduler=NodeId("o\0x"))

    path = msgspec.structs.replace(one, checkpoint="a\0b")
    name = msgspec.structs.replace(one, attempt=attempt)

    assert unfit(path) == f"the path of a checkpoint {UNFIT_NUL}"
    assert unfit(name) == f"the id of an attempt {UNFIT_NUL}"


def test_ends_become_outcomes() -> None:
    exited = outcome_of(AttemptEnd("exited", 3, "r"), stopped=False)
    stopped = outcome_of(AttemptEnd("exited", 143), stopped=True)
    failed = outcome_of(AttemptEnd("not-started", 0, "no such program"), stopped=True)
    lost = outcome_of(AttemptEnd("lost", 0, "its supervisor was killed"), stopped=False)

    assert (exited.kind, exited.exit_code, exited.reason) == ("exited", 3, "r")
    assert (stopped.kind, stopped.exit_code) == ("cancelled", 143)
    assert (failed.kind, failed.exit_code) == ("not-started", None)
    assert lost.kind == "lost"


def test_a_reason_fits_a_message() -> None:
    assert len(cut("x" * 20_000)) == TEXT_LENGTH_MAX
    assert cut(os.fsdecode(b"\xff")) == "?"


def test_attempts_have_folders_of_their_own(tmp_path: Path) -> None:
    workdirs = Workdirs(tmp_path)
    first, second = order("a").attempt, order("a").attempt

    work = workdirs.make(first)

    assert work == workdirs.make(first)
    assert workdirs.work(first) != workdirs.work(second)
    assert workdirs.kept(first, "stdout").parent == work.parent
    assert work.stat().st_mode & 0o777 == 0o700


def test_removing_an_attempt_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("mine", encoding="ascii")
    workdirs = Workdirs(tmp_path / "root")
    workdirs.root.mkdir()
    attempt = order("a").attempt
    (workdirs.make(attempt) / "link").symlink_to(outside)
    workdirs.kept(attempt, "stderr").symlink_to(outside / "data")

    workdirs.remove([attempt])

    assert (outside / "data").exists()
    assert list(workdirs.root.iterdir()) == []


def test_handing_over_follows_no_link(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    given, outside = tmp_path / "given", tmp_path / "outside"
    (given / "sub").mkdir(parents=True)
    outside.write_text("mine", encoding="ascii")
    (given / "sub" / "link").symlink_to(outside)

    hand_over(given, 12_345)

    assert (given / "sub").stat().st_uid == 12_345
    assert (given / "sub" / "link").lstat().st_uid == 12_345
    assert outside.stat().st_uid == 0
