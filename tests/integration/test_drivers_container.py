"""Tasks in containers, where an engine answers."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome
from tests.unit.drivers.orders import Watched, order

from shoal.drivers.container import ContainerDriver, Engine, find_engine
from shoal.drivers.process import Settings
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

IMAGE = "busybox"
FOUND = asyncio.run(find_engine())


def engine() -> Engine:
    if isinstance(FOUND, str):
        pytest.skip(f"containers are not tested: {FOUND}")
    return FOUND


def test_without_an_engine_the_reason_is_said() -> None:
    if not isinstance(FOUND, str):
        pytest.skip("an engine answers here")

    assert FOUND.startswith(("neither docker nor podman", "docker ", "podman "))


def run(
    root: Path, *argv: str, image: str = IMAGE, setup: tuple[str, ...] = ()
) -> tuple[Outcome, Watched]:
    async def main() -> tuple[Outcome, Watched]:
        watched = Watched()
        driver = ContainerDriver(root, engine(), Settings())
        await driver.open()
        try:
            outcome = await driver.run(order(*argv, image=image, setup=setup), watched)
        finally:
            await driver.close()
        return outcome, watched

    return asyncio.run(main())


def test_a_container_ends_with_the_exit_code_of_its_program(tmp_path: Path) -> None:
    outcome, watched = run(tmp_path, "sh", "-c", "echo $SHOAL_JOB_ID; pwd; exit 3")

    assert outcome.exit_code == 3
    assert watched.text() == "j\n/job\n"


def test_a_setup_comes_first_and_files_are_those_of_the_work_directory(
    tmp_path: Path,
) -> None:
    outcome, watched = run(
        tmp_path, "cat", "said", setup=("sh", "-c", "echo hi > said")
    )

    assert (outcome.exit_code, watched.text()) == (0, "hi\n")


def test_an_image_that_there_is_not_is_told_in_the_words_of_the_engine(
    tmp_path: Path,
) -> None:
    outcome, _ = run(tmp_path, "true", image="localhost/there-is-no-such-image")

    assert outcome.kind == "not-started"
    assert "there-is-no-such-image" in outcome.reason


def test_a_live_node_runs_jobs_with_an_image(tmp_path: Path) -> None:
    engine()
    home = CliHome(tmp_path)
    try:
        done = home("run", "--image", IMAGE, "--", "sh", "-c", "pwd; exit 4")
    finally:
        home.close()

    assert (done.code, done.out) == (4, "/job\n"), done


def test_a_job_without_an_image_is_not_started(tmp_path: Path) -> None:
    async def main() -> Outcome:
        driver = ContainerDriver(tmp_path, Engine("docker", "/bin/false"), Settings())
        return await driver.run(order("true"), Watched())

    outcome = asyncio.run(main())

    assert (outcome.kind, outcome.reason) == ("not-started", "the job names no image")


def test_an_engine_is_asked_for_leftovers_only_if_there_may_be_some(
    tmp_path: Path,
) -> None:
    asked = tmp_path / "asked"
    script = tmp_path / "engine"
    script.write_text(f"#!/bin/sh\necho $1 >> {asked}\n")
    script.chmod(0o755)

    async def live(*argv: str) -> list[str]:
        driver = ContainerDriver(
            tmp_path / "root", Engine("docker", str(script)), Settings()
        )
        asked.write_text("")
        await driver.open()
        try:
            if argv:
                await driver.run(order(*argv, image=IMAGE), Watched())
        finally:
            await driver.close()
        return asked.read_text().split()

    assert asyncio.run(live("true")) == ["run", "ps"]
    assert asyncio.run(live()) == ["ps"]
    assert asyncio.run(live()) == []
