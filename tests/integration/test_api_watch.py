"""Following a job over the API of a real node."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client

pytestmark = pytest.mark.integration

JOBS = 60


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    with homes(tmp_path) as make:
        home = make("home")
        home.up("--no-sandbox")
        yield home


def test_the_last_thing_told_of_a_job_is_its_end(home: CliHome) -> None:
    """Many short jobs: one of them ends while its view is on the way."""
    with Client(f"unix:{home.info['socket']}", name="home") as client:
        for number in range(JOBS):
            request = pb.SubmitRequest(job_id=f"j{number}", yaml="command: [/bin/true]")
            client.submit(request)
            *_, last = client.watch(request.job_id, 30.0)
            assert last.state == pb.STATE_DONE
