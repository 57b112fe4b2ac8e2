"""Who is served when many wait."""

from random import Random

import msgspec
import pytest
from tests.fake_keys import ROOT, SHOAL, granted, verify
from tests.unit.core.builders import SCHEDULER, job

from shoal.core import events, matching
from shoal.core.journal import Submitted
from shoal.core.membership import Members
from shoal.core.roster import Roster
from shoal.core.scheduler import Scheduler
from shoal.model.ids import NodeId
from shoal.model.job import Job
from shoal.model.resources import Capacity, Profile
from shoal.protocol import messages as m

W = NodeId("w")


def needing(id_: str, *profiles: Profile) -> Job:
    made = job(id_)
    [group] = made.groups
    task = msgspec.structs.replace(group.tasks[0], profiles=profiles)
    group = msgspec.structs.replace(group, tasks=(task,))
    return msgspec.structs.replace(made, groups=(group,))


def scheduler_with_a_small_worker() -> Scheduler:
    roster = Roster(Members(SHOAL, ROOT, verify), 0.0)
    roster.meet(SCHEDULER, granted(SCHEDULER), 0.0)
    scheduler = Scheduler(SCHEDULER, roster, rng=Random(1))
    scheduler.handle(events.Booted(), 0.0)
    scheduler.handle(events.MessageReceived(W, inventory(1)), 0.0)
    return scheduler


def inventory(seq: int) -> m.Inventory:
    return m.Inventory(
        epoch=1,
        seq=seq,
        capacity=Capacity(cpu_milli=500),
        load=m.Load(cpu_milli=500),
        drivers=("process",),
    )


def demands(effects: list[events.Effect]) -> list[Profile]:
    return [
        effect.message.profile
        for effect in effects
        if isinstance(effect, events.Send) and isinstance(effect.message, m.Demand)
    ]


def test_what_fits_is_served_though_very_many_that_do_not_are_ahead_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "SERVED_MAX", 4)  # So that few are very many.
    scheduler = scheduler_with_a_small_worker()
    small = Profile(cpu_milli=100)
    for n in range(6):
        too_large = needing(f"j{n}", Profile(cpu_milli=1_000 + n))
        scheduler._book.submit(Submitted(too_large, 0.0), 0.0)
        scheduler.matcher.note(too_large.groups[0].id)

    submitted = events.JobSubmitted(1, needing("small", small))
    first = scheduler.handle(submitted, 1.0)
    second = scheduler.handle(events.MessageReceived(W, inventory(2)), 1.1)

    assert demands(first + second) == [small]


def test_another_second_choice_is_tried_though_the_first_is_the_same() -> None:
    scheduler = scheduler_with_a_small_worker()
    large, small = Profile(cpu_milli=9_000), Profile(cpu_milli=100)
    in_vain = needing("a", large, Profile(cpu_milli=8_000))

    scheduler.handle(events.JobSubmitted(1, in_vain), 1.0)
    effects = scheduler.handle(events.JobSubmitted(2, needing("b", large, small)), 2.0)

    assert demands(effects) == [small]
