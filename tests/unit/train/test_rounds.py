"""The aggregator tells workers what they need, and refuses what cannot count."""

import math
from typing import Any

import pytest

from shoal.train.diloco import events, rounds
from shoal.train.diloco.messages import (
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
)
from shoal.train.diloco.rules import REJOIN_S, RoundRules


def told(effects: list[events.Effect]) -> dict[str, Directive]:
    return {
        e.worker: e.directive for e in effects if isinstance(e, events.DirectMember)
    }


def of_kind(effects: list[events.Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def status(
    worker: str, seq: int, merged: int = 0, *syncs: int, **changes: object
) -> events.StatusReceived:
    contributions = tuple(
        Contribution(sync, f"{worker}-{sync}", 10, 8, 1.0) for sync in syncs
    )
    fields: dict[str, object] = {
        "life": 1,
        "initial": "w0",
        "loaded": True,
        "segment": max(syncs, default=merged - 1) + 1,
        "contributions": contributions,
        **changes,
    }
    return events.StatusReceived(
        Status(worker=worker, seq=seq, merged=merged, **fields)  # type: ignore[arg-type]
    )


def running(workers: tuple[str, ...] = ("a", "b"), **changes: object) -> rounds.Rounds:
    fields: dict[str, object] = {
        "rounds": 5,
        "inner_steps": 8,
        "quorum": 2,
        "workers": len(workers),
        **changes,
    }
    machine = rounds.Rounds(RoundRules(**fields), epoch=1)  # type: ignore[arg-type]
    for worker in workers:
        machine.handle(status(worker, 1), 0.0)
    machine.handle(events.Loaded(0), 1.0)
    return machine


def contribute(
    machine: rounds.Rounds,
    sync: int,
    seq: int,
    now: float,
    norms: dict[str, float] | None = None,
    seconds: float = 0.0,
) -> list[events.Effect]:
    """Let all workers contribute; return what follows."""
    effects: list[events.Effect] = []
    for worker, norm in (norms or {"a": 1.0, "b": 1.0}).items():
        said = status(worker, seq, sync, sync, check=max(0, sync - 1))
        for effect in machine.handle(said, now):
            if isinstance(effect, events.Fetch):
                fetched = events.Fetched(
                    worker, effect.contribution, norm, seconds=seconds
                )
                effects += machine.handle(fetched, now)
    return effects


def close(
    machine: rounds.Rounds, sync: int, seq: int, now: float
) -> dict[str, Directive]:
    contribute(machine, sync, seq, now)
    update = Update(sync, f"u{sync}", check=sync)
    return told(machine.handle(events.Averaged(update), now))


def contribute_and_close(machine: rounds.Rounds, sync: int) -> list[Any]:
    """Close a sync; return what is published for it."""
    now = 5.0 + 5 * sync
    contribute(machine, sync, sync + 2, now)
    effects = machine.handle(events.Averaged(Update(sync, f"u{sync}", sync)), now)
    return of_kind(effects, events.PublishState)


def test_a_worker_is_told_the_outcome_that_it_waits_for() -> None:
    machine = running()

    directives = close(machine, sync=0, seq=2, now=5.0)

    for worker in ("a", "b"):
        assert [u.sync for u in directives[worker].updates] == [0]
        assert directives[worker].steps == {"1": 8}


def test_what_was_merged_is_not_told_again() -> None:
    machine = running()
    close(machine, sync=0, seq=2, now=5.0)

    assert "a" not in told(machine.handle(status("a", 3, 1), 5.5)), "it knows"
    assert told(machine.handle(status("a", 4, 1), 6.5))["a"].updates == ()


def test_whoever_did_not_hear_is_told_again() -> None:
    machine = running()
    close(machine, sync=0, seq=2, now=5.0)

    first = told(machine.handle(status("a", 3), 6.0))["a"]
    again = told(machine.handle(status("a", 4), 7.0))["a"]

    assert again == first


def test_weights_are_published_only_when_somebody_cannot_follow() -> None:
    machine = running(rounds=20, checkpoint_every=20)
    for sync in range(9):
        assert not contribute_and_close(machine, sync)
    machine.handle(status("a", 20, 9, check=8), 60.0)

    astray = machine.handle(status("b", 20, 9, check=999), 60.0)
    assert of_kind(astray, events.PublishState) == [events.PublishState("weights")]
    effects = machine.handle(events.Published("weights", 9, "w9"), 60.1)

    directive = told(effects)["b"]
    assert directive.reload
    assert directive.weights == KeptState(9, "w9")
    assert "a" not in told(effects)


def test_a_directive_that_met_a_status_midway_is_not_told_twice() -> None:
    machine = running()
    first = close(machine, 0, 2, 2.0)["a"]

    assert "a" not in told(machine.handle(status("a", 3), 2.5))
    assert told(machine.handle(status("a", 4), 3.0))["a"] == first
    assert "a" not in told(machine.handle(status("a", 5), 3.5))


def test_who_went_astray_early_begins_again_with_the_first_weights() -> None:
    machine = running()
    close(machine, sync=0, seq=2, now=5.0)

    astray = machine.handle(status("b", 3, 1, check=999), 6.0)

    assert not of_kind(astray, events.PublishState)
    assert told(astray)["b"].weights == KeptState(0, "w0")
    assert [update.sync for update in told(astray)["b"].updates] == [0]


def test_a_checkpoint_goes_to_keepers_every_so_many_rounds() -> None:
    machine = running(checkpoint_every=2)
    contribute(machine, sync=0, seq=2, now=5.0)
    first = machine.handle(events.Averaged(Update(0, "u0", 0)), 5.0)
    contribute(machine, sync=1, seq=3, now=9.0)

    second = machine.handle(events.Averaged(Update(1, "u1", 1)), 9.0)

    assert not of_kind(first, events.PublishState)
    assert of_kind(second, events.PublishState) == [events.PublishState("checkpoint")]
    directives = told(machine.handle(events.Published("checkpoint", 2, "c2"), 9.5))
    assert [each.keep for each in directives.values()] == [KeptState(2, "c2")] * 2
    assert directives["a"].keep_over_s == pytest.approx(4.0)  # Half of two rounds.
    assert directives["a"].safe == 0


def test_contributions_are_safe_once_two_workers_keep_what_they_became() -> None:
    machine = running(checkpoint_every=1)
    close(machine, sync=0, seq=2, now=5.0)
    machine.handle(events.Published("checkpoint", 1, "c1"), 5.5)
    kept = KeptState(1, "c1")

    machine.handle(status("a", 3, 1, holds=kept), 6.0)
    assert machine.safe == 0
    alone = told(machine.handle(status("b", 3, 1, holds=kept), 6.0))
    assert machine.safe == 1

    assert "b" not in alone, "what it may forget is no reason for a letter"
    assert close(machine, sync=1, seq=4, now=9.0)["b"].safe == 1


def test_a_new_aggregator_replays_what_workers_kept() -> None:
    machine = rounds.Rounds(
        RoundRules(rounds=9, inner_steps=8, quorum=2, workers=2), epoch=2
    )
    kept = KeptState(2, "c2")
    effects: list[events.Effect] = []
    for worker in ("a", "b"):
        effects += machine.handle(
            status(worker, 1, 4, 2, 3, holds=kept, segment=4, check=3), 0.0
        )
    assert of_kind(effects, events.LoadState)[0].syncs == 2
    directives = told(machine.handle(events.Loaded(2), 1.0))
    assert directives["a"].syncs == 2

    todo: list[events.Effect] = []
    for worker in ("a", "b"):
        listed = status(worker, 2, 4, 2, 3, holds=kept, segment=4, check=3)
        todo += machine.handle(listed, 1.0)
    while todo:
        match todo.pop(0):
            case events.Fetch() as order:
                done = events.Fetched(order.worker, order.contribution, 1.0)
                todo += machine.handle(done, 1.0)
            case events.Average() as order:
                assert {part.worker for part in order.parts} == {"a", "b"}
                update = Update(order.sync, f"u{order.sync}", order.sync)
                todo += machine.handle(events.Averaged(update), 1.0)
            case _:
                pass

    assert machine.closed == 4
    assert machine.phase == "running"


def test_what_is_not_finite_is_refused_and_the_sync_goes_on_without_it() -> None:
    machine = running(("a", "b", "c"))

    effects = contribute(machine, 0, 2, 5.0, {"a": 1.0, "b": math.nan, "c": 1.1})

    [report] = of_kind(effects, events.ReportMember)
    assert (report.kind, report.worker) == ("refused", "b")
    assert "not finite" in report.reason
    [order] = of_kind(effects, events.Average)
    assert [part.worker for part in order.parts] == ["a", "c"]
    assert order.refused == {"b": report.reason}
    directives = told(machine.handle(events.Averaged(Update(0, "u", 0)), 6.0))
    assert directives["b"].refused == report.reason
    assert directives["a"].refused == ""


def test_a_run_ends_with_a_reason_if_nobodys_contribution_can_count() -> None:
    machine = running()

    effects = contribute(machine, 0, 2, 5.0, {"a": math.inf, "b": math.nan})

    [stop] = of_kind(effects, events.StopTraining)
    assert "a: its delta is not finite; b: " in stop.failure
    assert not of_kind(effects, events.Average)


def test_the_deadline_follows_the_slowest_link() -> None:
    slow, fast = running(quorum=1), running(quorum=1)

    for machine, seconds in ((slow, 40.0), (fast, 0.1)):
        contribute(machine, 0, 2, 5.0, seconds=seconds)
        machine.handle(events.Averaged(Update(0, "u", 0)), 50.0)
        contribute(machine, 1, 3, 51.0, {"a": 1.0})
        machine.handle(status("b", 3, 1), 51.0)

    effects = fast.handle(events.RoundDeadline(), 60.2)
    [late] = of_kind(effects, events.ReportMember)
    assert (late.kind, late.worker) == ("left-out", "b")
    assert "in 10 s" in late.reason
    assert slow.pace.seconds("b", 0) == 40.0
    assert slow.handle(events.RoundDeadline(), 60.2) == []


def test_a_silent_worker_is_not_waited_for_once_there_is_a_quorum() -> None:
    machine = running(("a", "b", "c"))
    contribute(machine, 0, 2, 5.0)

    assert machine.next_deadline() == pytest.approx(3.0)  # Silent for three seconds.
    effects = machine.handle(events.RoundDeadline(), 5.1)

    [closing] = of_kind(effects, events.Average)
    assert {part.worker for part in closing.parts} == {"a", "b"}
    assert closing.missing == ("c",)


def test_one_who_is_heard_is_waited_for() -> None:
    machine = running(("a", "b", "c"))
    contribute(machine, 0, 2, 5.0)
    machine.handle(status("c", 2), 5.0)

    effects = machine.handle(events.RoundDeadline(), 5.1)

    assert not of_kind(effects, events.Average)


def test_a_newcomer_takes_part_in_the_open_sync_if_there_is_time() -> None:
    early, late = running(), running()

    for machine, now in ((early, 10.3), (late, 11.0)):
        contribute(machine, 0, 2, 9.0, seconds=0.1)
        machine.handle(events.Averaged(Update(0, "u", 0)), 10.0)
        effects = machine.handle(status("new", 1, loaded=False), now)
        directive = told(effects)["new"]
        if machine is early:
            assert directive.first == 1
            assert 0 < directive.steps["1"] < 8
        else:
            assert directive.first == 2


def test_two_who_contribute_the_same_are_reported_once() -> None:
    machine = running()
    effects: list[events.Effect] = []
    for sync, now in ((0, 5.0), (1, 9.0)):
        for worker in ("a", "b"):
            same = (Contribution(sync, f"same{sync}@{worker}", 10, 8, 1.0),)
            said = status(worker, sync + 2, sync, sync, contributions=same)
            for fetch in of_kind(machine.handle(said, now), events.Fetch):
                done = events.Fetched(worker, fetch.contribution, 1.0)
                effects += machine.handle(done, now)
        machine.handle(events.Averaged(Update(sync, f"u{sync}", sync)), now)

    [report] = of_kind(effects, events.ReportMember)
    assert (report.kind, report.worker) == ("alike", "b")
    assert "the very same as a" in report.reason


def test_a_newcomer_gets_what_another_loop_keeps_and_waits_for_it() -> None:
    machine = running(("a", "b"))
    close(machine, sync=0, seq=2, now=5.0)
    for worker in ("a", "b"):
        machine.handle(status(worker, 3, 1, inner_is="trained"), 6.0)

    fresh = machine.handle(
        status("c", 1, 0, loaded=False, inner_is="fresh", segment=0), 6.1
    )
    shared = KeptState(1, "adam")
    effects = machine.handle(status("a", 4, 1, inner_is="trained", inner=shared), 6.2)

    assert told(fresh)["c"].inner_comes
    assert told(fresh)["a"].share_inner == 1
    assert told(effects)["c"].inner == shared
    assert not told(effects)["c"].inner_comes


def test_what_a_loop_keeps_is_asked_of_another_if_its_worker_dies() -> None:
    machine = running(("a", "b"))
    close(machine, sync=0, seq=2, now=5.0)
    shared = KeptState(1, "adam")
    for worker in ("a", "b"):
        machine.handle(status(worker, 3, 1, inner_is="trained"), 6.0)
    machine.handle(status("c", 1, 0, loaded=False, inner_is="fresh", segment=0), 6.1)
    machine.handle(status("a", 4, 1, inner_is="trained", inner=shared), 6.2)

    directives = told(machine.handle(events.WorkerLost("a"), 6.3))

    assert directives["c"].inner is None
    assert directives["c"].inner_comes
    assert directives["b"].share_inner == 1


def test_a_run_goes_on_from_what_it_left_though_a_late_word_claims_more() -> None:
    """The last word of a worker may come when it, and all it had, are gone."""
    rules = RoundRules(rounds=5, inner_steps=8, quorum=1, workers=1)
    machine = rounds.Rounds(rules, epoch=2, left=KeptState(4, "left"))
    late = status("a", 9, 5, holds=KeptState(4, "gone"), check=4, leaving=True)
    assert of_kind(machine.handle(late, 0.0), events.LoadState)
    machine.handle(events.Loaded(4), 0.1)
    assert machine.phase == "gathering", "nobody has what it would replay"

    effects = machine.handle(status("a", 1, life=2, loaded=False, segment=0), 0.5)

    loads = of_kind(effects, events.LoadState)
    assert [(load.kind, load.syncs) for load in loads] == [("checkpoint", 4)]


def test_who_is_behind_a_narrow_link_keeps_no_checkpoint_if_others_can() -> None:
    machine = running(("a", "b", "c"), checkpoint_every=1, quorum=3)
    effects: list[events.Effect] = []
    for sync in range(2):
        for worker, seconds in (("a", 8.0), ("b", 0.1), ("c", 0.1)):
            said = status(worker, sync + 2, sync, sync, check=max(0, sync - 1))
            for order in of_kind(machine.handle(said, 5.0), events.Fetch):
                machine.handle(
                    events.Fetched(worker, order.contribution, 1.0, seconds=seconds),
                    5.0,
                )
        effects = machine.handle(events.Averaged(Update(sync, f"u{sync}", sync)), 5.0)
        published = events.Published("checkpoint", sync + 1, f"state{sync + 1}")
        effects += machine.handle(published, 5.0)

    keep = {worker: directive.keep for worker, directive in told(effects).items()}
    assert keep == {"a": None, "b": KeptState(2, "state2"), "c": KeptState(2, "state2")}


def test_after_a_failover_nobody_waits_long_for_workers_that_start_anew() -> None:
    rules = RoundRules(rounds=5, inner_steps=8, quorum=2, workers=3, gather_s=30.0)
    machine = rounds.Rounds(rules, epoch=2)
    kept = KeptState(2, "state")
    for worker in ("a", "b"):
        said = status(worker, 7, 2, 1, holds=kept, check=1)
        assert not of_kind(machine.handle(said, 10.0), events.LoadState)
    due = machine.next_deadline()
    assert due is not None

    effects = machine.handle(events.RoundDeadline(), due)

    assert of_kind(effects, events.LoadState)
    assert due <= 10.0 + REJOIN_S < 10.0 + rules.gather_s


def test_at_the_end_nobody_waits_for_a_worker_that_still_loads_weights() -> None:
    machine = running(("b", "c"), rounds=1)
    machine.handle(status("a", 1, 0, loaded=False, segment=0), 2.0)

    contribute(machine, 0, 2, 5.0, {"b": 1.0, "c": 1.0})
    directives = told(machine.handle(events.Averaged(Update(0, "u0", 0)), 5.0))
    stopped = [
        of_kind(machine.handle(status(w, 3, 1, leaving=True), 6.0), events.StopTraining)
        for w in ("b", "c")
    ]

    assert [w for w, told_it in directives.items() if told_it.validate] == ["b"]
    assert not stopped[0]
    assert stopped[1]


def test_at_the_end_workers_are_waited_for_if_all_of_them_load_weights() -> None:
    machine = rounds.Rounds(
        RoundRules(rounds=1, inner_steps=8, quorum=1, workers=1),
        epoch=2,
        left=KeptState(1, "left"),
    )
    machine.handle(status("a", 1, 0, loaded=False, segment=0), 0.0)

    effects = machine.handle(events.Loaded(1), 1.0)

    assert machine.phase == "finished"
    assert not of_kind(effects, events.StopTraining)
    assert told(effects)["a"].validate


def test_a_checkpoint_that_falls_due_while_one_is_written_is_written_next() -> None:
    machine = running(checkpoint_every=2)
    contribute_and_close(machine, 0)
    assert contribute_and_close(machine, 1)
    contribute_and_close(machine, 2)
    assert not contribute_and_close(machine, 3), "one is being written"

    early = machine.handle(events.Published("checkpoint", 2, "c2"), 30.0)
    late = machine.handle(events.Published("checkpoint", 4, "c4"), 31.0)

    assert of_kind(early, events.PublishState) == [events.PublishState("checkpoint")]
    assert not of_kind(late, events.PublishState)
