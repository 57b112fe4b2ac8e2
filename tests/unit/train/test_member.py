"""A worker does what it is told to, once, and keeps what others may need."""

import msgspec

from shoal.train.diloco.member import (
    Compute,
    LeaveTraining,
    Member,
    Merge,
    Reload,
    ShareInner,
    TakeInner,
    Validate,
    Wait,
)
from shoal.train.diloco.messages import Contribution, Directive, KeptState, Update


def directive(seq: int, **changes: object) -> Directive:
    start = Directive(
        epoch=1,
        seq=seq,
        life=3,
        running=True,
        weights=KeptState(0, "w0"),
        steps={"0": 50},
    )
    return msgspec.structs.replace(start, **changes)


def member(fragments: int = 1) -> Member:
    return Member("train.0", life=3, initial="w0", fragments=fragments)


def contribute(worker: Member, sync: int) -> None:
    worker.computed(sync)
    worker.contributed(Contribution(sync, f"d{sync}", 100, 50))


def test_it_waits_until_it_is_told_something() -> None:
    assert member().next_action() == Wait()


def test_it_computes_with_its_own_weights_if_all_begin_with_them() -> None:
    worker = member()

    worker.direct(directive(1))

    assert worker.next_action() == Compute(segment=0, steps=50)


def test_it_takes_the_weights_of_the_others_if_they_differ() -> None:
    worker = member()

    worker.direct(directive(1, weights=KeptState(0, "theirs")))

    assert worker.next_action() == Reload(0, "theirs")
    worker.has_reloaded(0, check=0)
    assert worker.next_action() == Compute(segment=0, steps=50)


def test_it_waits_for_the_outcome_of_its_sync_and_then_goes_on() -> None:
    worker = member()
    worker.direct(directive(1))
    contribute(worker, 0)
    assert worker.next_action() == Wait()
    update = Update(0, "u0", check=7)

    worker.direct(directive(2, syncs=1, updates=(update,), steps={"1": 40}))

    assert worker.next_action() == Merge(update)
    worker.has_merged(update)
    assert worker.next_action() == Compute(segment=1, steps=40)
    assert worker.status().check == 7


def test_with_fragments_it_computes_while_a_sync_is_under_way() -> None:
    worker = member(fragments=4)
    worker.direct(directive(1, steps={"0": 10, "1": 10, "2": 10, "3": 10}))
    worker.computed(0)

    for ahead in (1, 2):
        assert worker.next_action() == Compute(segment=ahead, steps=10)
        worker.computed(ahead)
    assert worker.next_action() == Wait()


def test_it_skips_a_segment_whose_sync_was_closed_without_it() -> None:
    worker = member()
    worker.direct(directive(1))
    update = Update(0, "u0", check=7)

    worker.direct(directive(2, syncs=1, updates=(update,), steps={"1": 50}))
    worker.has_merged(update)

    assert worker.next_action() == Compute(segment=1, steps=50)


def test_it_takes_all_weights_anew_if_it_missed_an_outcome() -> None:
    worker = member()
    worker.direct(directive(1))

    worker.direct(
        directive(
            9,
            syncs=20,
            weights=KeptState(20, "w20"),
            updates=(Update(19, "u", 1),),
        )
    )

    assert worker.next_action() == Reload(20, "w20")


def test_it_obeys_an_order_to_reload_once() -> None:
    worker = member()
    worker.direct(directive(1))
    worker.direct(directive(2, syncs=0, reload=True))
    assert worker.next_action() == Reload(0, "w0")

    worker.has_reloaded(0, check=0)

    assert worker.next_action() == Compute(segment=0, steps=50)


def test_old_directives_and_those_of_another_life_change_nothing() -> None:
    worker = member()
    assert worker.direct(directive(5))

    assert not worker.direct(directive(5, steps={"0": 1}))
    assert not worker.direct(directive(4, steps={"0": 1}))
    assert not worker.direct(directive(6, life=2, steps={"0": 1}))
    assert worker.next_action() == Compute(segment=0, steps=50)
    assert worker.direct(directive(1, epoch=2, steps={"0": 7}))
    assert worker.next_action() == Compute(segment=0, steps=7)


def test_it_keeps_a_contribution_until_that_is_safe() -> None:
    worker = member()
    worker.direct(directive(1))
    for sync in range(3):
        contribute(worker, sync)

    worker.direct(directive(2, safe=2))

    assert [each.sync for each in worker.status().contributions] == [2]


def test_it_keeps_the_checkpoint_that_it_is_asked_to_keep() -> None:
    worker = member()
    worker.direct(directive(1, keep=KeptState(3, "c3")))
    wanted = worker.to_keep
    assert wanted is not None

    worker.keeps(wanted)

    assert not worker.to_keep
    assert worker.status().holds == KeptState(3, "c3")


def test_it_measures_the_last_weights_before_it_leaves_if_it_is_asked_to() -> None:
    worker = member()
    worker.direct(directive(1))
    update = Update(0, "u0", check=7)
    worker.direct(
        directive(2, syncs=1, updates=(update,), validate=True, finished=True)
    )
    assert worker.next_action() == Merge(update)

    worker.has_merged(update)

    assert worker.next_action() == Validate(1)
    worker.has_validated(1, {"loss": 2.0})
    assert worker.next_action() == LeaveTraining()


def test_it_leaves_at_once_if_nothing_is_left_to_do() -> None:
    worker = member()

    worker.direct(directive(1, syncs=9, finished=True))

    assert worker.next_action() == LeaveTraining()


def test_its_list_of_contributions_begins_with_the_first_open_sync() -> None:
    worker = member()
    worker.direct(directive(1))
    for sync in range(30):
        contribute(worker, sync)

    worker.direct(directive(2, syncs=7))

    status = worker.status()
    assert status.listed_from == 7
    assert [each.sync for each in status.contributions] == list(range(7, 23))


def test_a_delta_that_is_being_made_is_still_to_come() -> None:
    worker = member()
    worker.direct(directive(1))

    worker.computed(0)

    assert worker.status().segment == 0
    worker.contributed(Contribution(0, "d0", 100, 50))
    assert worker.status().segment == 1


def test_a_checkpoint_that_it_began_with_need_not_be_fetched() -> None:
    worker = member()

    worker.direct(directive(1, keep=KeptState(0, "w0@elsewhere")))

    assert worker.to_keep is None
    assert worker.status().holds == KeptState(0, "w0")


def test_a_newcomer_waits_for_what_another_loop_keeps_and_takes_it_over() -> None:
    worker = Member("train.0", life=3, initial="w0", fragments=1, keeps_inner=True)
    worker.direct(directive(1, inner_comes=True))
    assert worker.next_action() == Wait()

    worker.direct(directive(2, inner=KeptState(4, "adam")))

    assert worker.next_action() == TakeInner(KeptState(4, "adam"))
    worker.took_inner()
    assert worker.next_action() == Compute(segment=0, steps=50)


def test_it_shares_what_its_loop_keeps_even_at_the_end() -> None:
    worker = Member("train.0", life=3, initial="w0", fragments=1, keeps_inner=True)
    worker.direct(directive(1))
    contribute(worker, 0)
    update = Update(0, "u0", check=7)
    worker.direct(
        directive(2, syncs=1, updates=(update,), share_inner=1, finished=True)
    )
    worker.has_merged(update)

    assert worker.next_action() == ShareInner(1)
    worker.shares_inner(KeptState(1, "adam"))
    assert worker.next_action() == LeaveTraining()


def test_who_has_lost_its_way_waits_for_weights() -> None:
    worker = member()
    worker.direct(directive(1))

    worker.has_lost_its_way()
    worker.direct(directive(2, weights=None))

    assert worker.next_action() == Wait()
    assert not worker.status().loaded


def test_a_contribution_that_was_left_out_is_kept_no_more() -> None:
    worker = member()
    worker.direct(directive(1))
    contribute(worker, 0)

    worker.has_merged(Update(0, "u0", 7, missing=("train.1", "train.0")))

    assert worker.status().contributions == ()
    assert worker.unneeded() == ["d0"]
