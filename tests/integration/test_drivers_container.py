"""Tasks in containers, where an engine answers."""

import asyncio
from pathlib import Path

import pytest
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


def run(root: Path, *argv: str) -> tuple[Outcome, Watched]:
    async def main() -> tuple[Outcome, Watched]:
        watched = Watched()
        driver = ContainerDriver(root, engine(), Settings())
        await driver.open()
        try:
            outcome = await driver.run(order(*argv, image=IMAGE), watched)
        finally:
            await driver.close()
        return outcome, watched

    return asyncio.run(main())


def test_a_container_ends_with_the_exit_code_of_its_program(tmp_path: Path) -> None:
    outcome, watched = run(tmp_path, "sh", "-c", "echo $SHOAL_JOB_ID; pwd; exit 3")

    assert outcome.exit_code == 3
    assert watched.text() == "j\n/job\n"


def test_a_job_without_an_image_is_not_started(tmp_path: Path) -> None:
    async def main() -> Outcome:
        driver = ContainerDriver(tmp_path, Engine("docker", "/bin/false"), Settings())
        return await driver.run(order("true"), Watched())

    outcome = asyncio.run(main())

    assert (outcome.kind, outcome.reason) == ("not-started", "the job names no image")
