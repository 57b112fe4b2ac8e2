"""Clients wait for the disk, up to a limit, and always get an answer."""

import asyncio

from tests.runtime.virtual_time import run

from shoal.core.events import Answer, CancelRequested, Event, JobSubmitted
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job
from shoal.model.spec.submission import load_spec
from shoal.runtime import clients
from shoal.runtime.clients import WaitingClients
from shoal.runtime.monitoring.change_signal import ChangeSignal


class Disk:
    """Answers what is fed at once, and is behind when the test says so."""

    def __init__(self) -> None:
        self.behind = False
        self.fed: list[Event] = []
        self.news = ChangeSignal()
        self.clients = WaitingClients(self.feed, lambda: self.behind, self.news)

    def feed(self, event: Event) -> None:
        """Take a fact as a machine does that refuses nothing."""
        self.fed.append(event)
        if isinstance(event, JobSubmitted):
            self.clients.answer(Answer(event.token, event.job.id))
        elif isinstance(event, CancelRequested):
            self.clients.answer(Answer(event.token, event.job))


def job(name: str = "j1") -> Job:
    return derive(load_spec("command: ['true']", "yaml"), JobId(name), OwnerId("me"))


def test_a_job_waits_while_the_disk_is_behind_and_gets_through_after() -> None:
    async def story() -> None:
        disk = Disk()
        disk.behind = True
        waiting = asyncio.ensure_future(disk.clients.submit(job()))
        await asyncio.sleep(1.0)
        assert disk.fed == []

        disk.behind = False
        disk.news.tell()

        assert (await waiting).refused == ""

    run(story())


def test_a_disk_that_stays_behind_gets_no_new_jobs_and_that_is_said() -> None:
    async def story() -> None:
        disk = Disk()
        disk.behind = True

        answer = await disk.clients.submit(job())

        assert answer.refused == "the disk has been behind for 10 s; try again later"
        assert disk.fed == []

    run(story())


def test_a_job_can_be_cancelled_while_the_disk_is_behind() -> None:
    async def story() -> None:
        disk = Disk()
        disk.behind = True

        answer = await disk.clients.cancel(JobId("j1"), "enough")

        assert answer.refused == ""

    run(story())


def test_only_so_many_jobs_wait_at_one_time() -> None:
    async def story() -> None:
        disk = Disk()
        disk.behind = True
        one = job()
        count = clients.WAITING_MAX
        waiting = [
            asyncio.ensure_future(disk.clients.submit(one)) for _ in range(count)
        ]
        await asyncio.sleep(0)

        answer = await disk.clients.submit(one)
        disk.behind = False
        disk.news.tell()
        answers = await asyncio.gather(*waiting)

        assert answer.refused.startswith(f"{count} jobs are being handed in already")
        assert not any(each.refused for each in answers)
        assert (await disk.clients.submit(one)).refused == ""

    run(story())
