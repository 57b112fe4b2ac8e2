"""Shares: how many, whose they are, and when they are averaged."""

import zlib
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from shoal.errors import ProtocolError
from shoal.train import tensors
from shoal.train.diloco import outer
from shoal.train.diloco.averaging import Delta
from shoal.train.diloco.compression import Array
from shoal.train.diloco.events import RoundDeadline, StatusReceived, WorkerLost
from shoal.train.diloco.messages import (
    MESSAGE_BYTES_MAX,
    Contribution,
    KeptState,
    Status,
    Update,
    encode,
    joined_check,
)
from shoal.train.diloco.rounds import Rounds
from shoal.train.diloco.rules import RoundRules
from shoal.train.diloco.shares import coordinator, reducer
from shoal.train.diloco.shares.assignment import assigned, shares_of
from shoal.train.diloco.shares.messages import (
    Duties,
    Reduced,
    Reduction,
    ShareNorm,
    ShareOutcome,
    ShareReport,
    ShareSource,
    ShareWeight,
    decode_for_worker,
    decode_from_worker,
)
from shoal.train.diloco.shares.state import AveragedShare, OuterState, OuterStep


def rules(**fields: object) -> RoundRules:
    chosen = {"rounds": 4, "inner_steps": 8, "workers": 4, "quorum": 4, **fields}
    return RoundRules(**chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "values", "shares"),
    [
        ({"reduce": "auto"}, 100_000, 0),
        ({"reduce": "auto"}, 300_000, 4),
        ({"reduce": "auto", "value_bytes": 2}, 300_000, 0),
        ({"reduce": "auto", "fragments": 2}, 300_000, 0),
        ({"reduce": "auto", "workers": 2, "quorum": 2}, 300_000, 0),
        ({"reduce": "shared", "workers": 2, "quorum": 2}, 10, 2),
        ({"reduce": "shared", "quorum": 2}, 10, 12),
        ({"reduce": "shared", "workers": 900, "quorum": 2}, 10, 64),
        ({"reduce": "central"}, 1 << 40, 0),
    ],
)
def test_large_models_of_many_workers_have_no_centre(
    fields: dict[str, object], values: int, shares: int
) -> None:
    assert shares_of(rules(**fields), values) == shares


def test_shares_stay_with_their_owners_as_far_as_all_have_alike() -> None:
    first = assigned((), ["a", "b", "c", "d"], 12)
    without = assigned(first, ["a", "b", "d"], 12)
    again = assigned(without, ["a", "b", "d", "e"], 12)

    assert [first.count(name) for name in "abcd"] == [3, 3, 3, 3]
    assert [without.count(name) for name in "abd"] == [4, 4, 4]
    assert all(
        now == was for now, was in zip(without, first, strict=True) if was != "c"
    )
    assert [again.count(name) for name in "abde"] == [3, 3, 3, 3]
    moved = [n for n, was in enumerate(without) if again[n] != was]
    assert {again[n] for n in moved} == {"e"}


def test_shares_cover_a_fragment_and_their_checks_make_one() -> None:
    layout = tensors.Layout({"w": (10,)}, {"mean": (3,)})
    flat = np.arange(13, dtype=np.float32)
    part = layout.fragment(1, 2)

    shares = part.cut(3)

    assert [share.trained for share in shares] == [
        slice(5, 6),
        slice(6, 8),
        slice(8, 10),
    ]
    assert shares[0].buffers.start == part.buffers.start
    assert shares[-1].buffers.stop == part.buffers.stop
    each = [tensors.check(flat, share) for share in shares]
    assert tensors.check(flat, part, 3) == joined_check(each)
    assert joined_check(each) != joined_check(each[::-1])


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_updates_tell_the_momentum_behind_them(momentum: float | None) -> None:
    rule = outer.Outer(momentum=momentum)
    rng = np.random.default_rng(3)
    exact = rng.normal(size=50).astype(np.float32)
    known = np.zeros_like(exact)  # It was not there before.
    errors: list[float] = []
    for done in range(10, 24):
        gradient = rng.normal(size=50).astype(np.float32)
        update, exact = outer.step(rule, gradient, exact, rounds_done=done, workers=4.0)
        known = outer.followed(rule, update, known, rounds_done=done, workers=4.0)
        errors.append(float(np.abs(known - exact).max()))

    assert all(b < 0.55 * a for a, b in pairwise(errors[:9]))
    np.testing.assert_allclose(known, exact, atol=3e-4)


def duties(seq: int = 1, *, order: int = 0, offer: int | None = None) -> Duties:
    sources = (ShareSource("a", "ca", ("fa",)), ShareSource("b", "cb", ("fb",)))
    parts = (ShareWeight("a", 8), ShareWeight("b", 8)) if order else ()
    reduction = Reduction(3, (1,), sources, order, parts)
    return Duties(epoch=1, seq=seq, life=1, offer=offer, reductions=(reduction,))


def test_a_large_message_is_squeezed_and_read_like_a_small_one() -> None:
    names = tuple(f"{n:064x}@node" for n in range(8))
    sources = tuple(ShareSource(f"train.{n}", names[n], names) for n in range(8))
    large = Duties(epoch=1, seq=2, reductions=(Reduction(3, (1,), sources),))

    data = encode(large)

    assert decode_for_worker(data) == large
    assert decode_for_worker(encode(duties())) == duties()
    assert len(data) < 0.5 * len(msgspec.msgpack.encode(large))


@pytest.mark.parametrize(
    "data",
    [
        zlib.compress(bytes(MESSAGE_BYTES_MAX + 1)),
        zlib.compress(msgspec.msgpack.encode(duties()))[:-2],
        b"\x78 is how it begins",
    ],
    ids=["bomb", "cut", "garbage"],
)
def test_what_only_looks_squeezed_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not what a trainer says"):
        decode_from_worker(data)


def ordered(effects: list[coordinator.SharedEffect]) -> dict[str, Duties]:
    return {
        e.worker: e.duties for e in effects if isinstance(e, coordinator.DirectOwner)
    }


def said(worker: str, seq: int, merged: int) -> StatusReceived:
    kept = KeptState(merged, f"offered{merged}")
    return StatusReceived(
        Status(
            worker=worker,
            life=1,
            seq=seq,
            merged=merged,
            initial="start",
            loaded=merged > 0,
            segment=merged,
            offered=kept,
        )
    )


def offers(worker: str, seq: int, syncs: int) -> coordinator.ReportReceived:
    kept = KeptState(syncs, f"state{syncs}")
    return coordinator.ReportReceived(
        ShareReport(worker=worker, life=1, seq=seq, heard=(1, 1), offered=kept)
    )


def two_with_weights() -> coordinator.ShareCoordinator:
    """Begin after one sync: a and b have the weights, and c has not."""
    chosen = rules(fragments=2, quorum=2, workers=3, reduce="shared")
    machine = coordinator.ShareCoordinator(Rounds(chosen, epoch=1), epoch=1)
    for seq, (worker, merged) in enumerate([("b", 1), ("c", 0), ("a", 1)]):
        machine.handle(said(worker, seq, merged), 0.0)
    assert machine.rounds.closed == 1
    return machine


def test_whoever_offers_weights_of_a_sync_that_is_not_closed_is_passed_over() -> None:
    machine = two_with_weights()

    asked_next = ordered(machine.handle(offers("a", 4, 2), 0.0))
    assert (asked_next["a"].offer, asked_next["b"].offer) == (None, 1)

    effects = machine.handle(offers("b", 5, 1), 0.0)
    assert coordinator.SaveState("b", KeptState(1, "state1")) in effects


def test_nobody_waits_for_the_only_one_who_offers_what_cannot_be() -> None:
    machine = two_with_weights()
    machine.handle(WorkerLost("a"), 0.0)

    machine.handle(offers("b", 4, 2), 0.0)  # This once went on for ever.
    effects = machine.handle(offers("b", 5, 1), 0.0)

    assert coordinator.SaveState("b", KeptState(1, "state1")) in effects


def test_contributions_that_come_together_are_told_together() -> None:
    asked = rules(workers=3, quorum=3, reduce="shared")
    machine = coordinator.ShareCoordinator(Rounds(asked, epoch=1), epoch=1)

    def says(worker: str, seq: int, now: float, *syncs: int) -> dict[str, Duties]:
        given = tuple(
            Contribution(n, f"{worker}{n}", 8, 8, shares=("0", "1", "2")) for n in syncs
        )
        status = Status(
            worker=worker,
            seq=seq,
            initial="w",
            loaded=True,
            segment=max(syncs, default=-1) + 1,
            contributions=given,
            values=9,
        )
        return ordered(machine.handle(StatusReceived(status), now))

    for worker in "abc":
        says(worker, 1, 0.0)
    assert says("a", 2, 5.0, 0) == {}
    assert says("b", 2, 5.02, 0) == {}
    due = machine.next_deadline() or 0.0
    assert due == pytest.approx(5.0 + coordinator.TOGETHER_S)

    two = ordered(machine.handle(RoundDeadline(), due))
    last = says("c", 2, due + 0.01, 0)

    for told_now, sources in ((two, 2), (last, 3)):
        assert set(told_now) == {"a", "b", "c"}
        for each in told_now.values():
            [reduction] = each.reductions
            assert (len(reduction.sources), reduction.expected) == (sources, 3)
            assert reduction.is_complete == (sources == 3), "then it is told at once"


def contributed() -> tuple[coordinator.ShareCoordinator, dict[str, Duties]]:
    """Let three workers contribute to the first sync; return their duties as well."""
    asked = rules(workers=3, quorum=3, reduce="shared")
    machine = coordinator.ShareCoordinator(Rounds(asked, epoch=1), epoch=1)
    duties_now: dict[str, Duties] = {}
    for seq in (1, 2):
        for worker in "abc":
            given = Contribution(0, f"c{worker}", 8, 8, shares=("0", "1", "2"))
            status = Status(
                worker=worker,
                seq=seq,
                initial="w",
                loaded=True,
                segment=seq - 1,
                contributions=(given,) if seq == 2 else (),
                values=9,
            )
            effects = machine.handle(StatusReceived(status), 0.1 * seq)
            duties_now |= ordered(effects)
    return machine, duties_now


def done_by(
    worker: str, given: Duties, norms: dict[str, float], seq: int = 1
) -> coordinator.ReportReceived:
    """Return what an owner says when it has measured and averaged its share."""
    [reduction] = given.reductions
    [share] = reduction.shares
    found = tuple(
        ShareNorm(each.worker, each.contribution, share, norms[each.worker])
        for each in reduction.sources
    )
    outcome = ShareOutcome(share, f"o{share}-{reduction.order}", share)
    reduced = Reduced(0, found, reduction.order, (outcome,))
    heard = (given.epoch, given.seq)
    report = ShareReport(worker=worker, seq=seq, heard=heard, reduced=(reduced,))
    return coordinator.ReportReceived(report)


def test_what_counts_is_presumed_so_that_a_sync_closes_with_what_was_measured() -> None:
    machine, duties_now = contributed()
    for each in duties_now.values():
        [reduction] = each.reductions
        assert reduction.order
        assert [part.worker for part in reduction.parts] == ["a", "b", "c"]

    norms = {"a": 1.0, "b": 1.0, "c": 1.0}
    effects = [
        effect
        for worker, given in duties_now.items()
        for effect in machine.handle(done_by(worker, given, norms), 0.4)
    ]

    assert machine.rounds.closed == 1
    assert sum(isinstance(each, coordinator.NoteClosed) for each in effects) == 1
    assert ordered(effects) == {}, "nobody was told anything more"


def test_what_is_judged_otherwise_than_was_presumed_is_averaged_once_more() -> None:
    machine, before = contributed()
    norms = {"a": 1.0, "b": 1.0, "c": 36.0}  # of squares: six times as large

    effects = [
        effect
        for worker, given in before.items()
        for effect in machine.handle(done_by(worker, given, norms), 0.4)
    ]

    assert machine.rounds.closed == 0
    now = ordered(effects)
    assert set(now) == {"a", "b", "c"}
    for worker, given in now.items():
        [reduction] = given.reductions
        assert reduction.order > before[worker].reductions[0].order
        assert [part.scale for part in reduction.parts] == [1.0, 1.0, 0.5]
    for worker in "abc":  # They repeat what is of no use any more.
        machine.handle(done_by(worker, before[worker], norms, seq=2), 0.5)
    assert machine.rounds.closed == 0
    for worker in "abc":
        machine.handle(done_by(worker, now[worker], norms, seq=3), 0.6)
    assert machine.rounds.closed == 1


def test_nobody_is_expected_any_more_who_is_lost() -> None:
    machine = two_with_weights()
    given = Contribution(1, "a1", 8, 8, shares=("0", "1", "2"))
    for seq, worker in enumerate("ab", start=6):
        about = msgspec.structs.replace(
            said(worker, seq, 1).status, contributions=(given,), segment=2
        )
        machine.handle(StatusReceived(about), 1.0)

    effects = machine.handle(WorkerLost("c"), 1.1)

    told_now = ordered(effects) | ordered(machine.handle(RoundDeadline(), 2.0))
    for duties_now in told_now.values():
        assert all(each.is_complete for each in duties_now.reductions)


def told(machine: reducer.Reducer, what: Duties) -> list[reducer.ReducerEffect]:
    return machine.handle(reducer.DutiesReceived(what))


def owner() -> reducer.Reducer:
    """Return the owner of a share who has fetched all there is of it."""
    machine = reducer.Reducer("a", 1, fragments=1)
    machine.handle(reducer.SharesMerged(3))
    for effect in told(machine, duties()):
        assert isinstance(effect, reducer.FetchShare)
        machine.handle(reducer.ShareFetched(effect, 4.0))
    return machine


def test_an_owner_fetches_and_measures_before_anything_is_decided() -> None:
    machine = reducer.Reducer("a", 1, fragments=1)
    machine.handle(reducer.SharesMerged(3))

    fetches = told(machine, duties())

    # Not all begin with the same worker.
    assert [f.file for f in fetches if isinstance(f, reducer.FetchShare)] == [
        "fb",
        "fa",
    ]
    assert told(machine, duties()) == []
    [first, _] = fetches
    assert isinstance(first, reducer.FetchShare)
    assert machine.handle(reducer.ShareUnavailable(first)) == [first]
    machine.handle(reducer.ShareFetched(first, 4.0, seconds=2.0))
    [norm] = machine.report().reduced[0].norms
    assert (norm.worker, norm.share, norm.squares, norm.seconds) == ("b", 1, 4.0, 2.0)


@pytest.mark.parametrize(
    ("squares", "fault"), [(float("nan"), ""), (float("inf"), ""), (4.0, "garbage")]
)
def test_what_is_measured_with_a_fault_is_never_averaged(
    squares: float, fault: str
) -> None:
    machine = reducer.Reducer("a", 1, fragments=1)
    machine.handle(reducer.SharesMerged(3))
    first, second = told(machine, duties(order=7))
    assert isinstance(first, reducer.FetchShare)
    assert isinstance(second, reducer.FetchShare)
    machine.handle(reducer.ShareFetched(first, squares, fault))

    assert machine.handle(reducer.ShareFetched(second, 4.0)) == []
    report = machine.news()
    assert report is not None, "others wait for what was measured"
    assert len(report.reduced[0].norms) == 2


def test_what_was_measured_is_reported_together_with_the_outcome() -> None:
    machine = reducer.Reducer("a", 1, fragments=1)
    machine.handle(reducer.SharesMerged(3))
    first, second = told(machine, duties(order=7))
    assert isinstance(first, reducer.FetchShare)
    assert isinstance(second, reducer.FetchShare)
    machine.handle(reducer.ShareFetched(first, 4.0))

    [order] = machine.handle(reducer.ShareFetched(second, 4.0))

    assert machine.news() is None
    assert isinstance(order, reducer.ReduceShares)
    machine.handle(reducer.SharesReduced(order, (ShareOutcome(1, "o", 5),)))
    report = machine.news()
    assert report is not None
    assert (len(report.reduced[0].norms), len(report.reduced[0].outcomes)) == (2, 1)


def test_one_share_at_a_time_comes_from_each_worker() -> None:
    sources = (
        ShareSource("b", "cb", ("b1", "b2")),
        ShareSource("c", "cc", ("c1", "c2")),
    )
    both = Duties(epoch=1, seq=1, life=1, reductions=(Reduction(3, (1, 2), sources),))
    machine = reducer.Reducer("a", 1, fragments=1)

    effects = told(machine, both)

    first, other = [each for each in effects if isinstance(each, reducer.FetchShare)]
    assert (first.file, other.file) == ("b1", "c1")
    [following] = machine.handle(reducer.ShareFetched(other, 1.0))
    assert isinstance(following, reducer.FetchShare)
    assert following.file == "c2"


def test_only_what_somebody_waits_for_is_reported_at_once() -> None:
    machine = reducer.Reducer("a", 1, fragments=1)
    machine.handle(reducer.SharesMerged(3))
    fetches = told(machine, duties())
    assert machine.news() is None, "nothing is done yet"
    for effect in fetches:
        assert isinstance(effect, reducer.FetchShare)
        assert machine.news() is None, "more follows in a moment"
        machine.handle(reducer.ShareFetched(effect, 4.0))
    assert machine.news() is not None
    assert machine.news() is None, "it was told"
    [order] = told(machine, duties(2, order=7))
    assert machine.news() is None, "a heartbeat tells that this was heard"
    assert isinstance(order, reducer.ReduceShares)
    machine.handle(reducer.SharesReduced(order, (ShareOutcome(1, "o", 5),)))
    assert machine.news() is not None
    other = msgspec.structs.replace(duties(order=7), epoch=2)
    [again] = told(machine, other)
    assert machine.news() is None, "the outcome follows in a moment"
    assert isinstance(again, reducer.ReduceShares)
    machine.handle(reducer.SharesReduced(again, (ShareOutcome(1, "o", 5),)))
    assert machine.news() is not None, "whoever took over was told nothing yet"


def test_what_was_measured_waits_for_the_contributions_that_are_still_to_come() -> None:
    machine = reducer.Reducer("a", 1, fragments=1)
    [reduction] = duties().reductions
    more = msgspec.structs.replace(reduction, expected=len(reduction.sources) + 1)
    waiting = msgspec.structs.replace(duties(), reductions=(more,))

    for effect in told(machine, waiting):
        assert isinstance(effect, reducer.FetchShare)
        machine.handle(reducer.ShareFetched(effect, 4.0))

    assert machine.news() is None, "a heartbeat says it, or the last one's coming"
    told(machine, duties(2))
    assert machine.news() is not None


def test_a_sync_that_is_done_does_not_wait_for_what_the_next_one_fetches() -> None:
    machine = owner()
    assert machine.news() is not None
    [open_] = duties(order=7).reductions
    following = msgspec.structs.replace(open_, sync=4, order=0, parts=())
    both = msgspec.structs.replace(duties(2), reductions=(open_, following))

    [order, *fetches] = told(machine, both)
    assert isinstance(order, reducer.ReduceShares)
    assert fetches
    machine.handle(reducer.SharesReduced(order, (ShareOutcome(1, "o", 5),)))

    assert machine.news() is not None


@pytest.mark.parametrize("merged", [-1, 2])
def test_nothing_is_averaged_over_weights_of_another_sync(merged: int) -> None:
    machine = owner()
    machine.handle(reducer.SharesMerged(merged))

    assert told(machine, duties(2, order=7)) == []
    [order] = machine.handle(reducer.SharesMerged(3))
    assert isinstance(order, reducer.ReduceShares)
    assert order.contributions == ("ca", "cb")


def test_the_outcome_of_an_earlier_decision_is_not_reported() -> None:
    machine = owner()
    [early] = told(machine, duties(2, order=7))
    [late] = told(machine, duties(3, order=8))
    assert isinstance(early, reducer.ReduceShares)
    assert isinstance(late, reducer.ReduceShares)

    machine.handle(reducer.SharesReduced(early, (ShareOutcome(1, "old", 5),)))
    assert machine.report().reduced[0].outcomes == ()
    machine.handle(reducer.SharesReduced(late, (ShareOutcome(1, "new", 6),)))

    [reduced] = machine.report().reduced
    assert (reduced.order, reduced.outcomes[0].file) == (8, "new")


def test_late_duties_and_those_for_another_life_are_ignored() -> None:
    machine = owner()
    told(machine, duties(5, order=7))
    heard = machine.report().heard

    assert told(machine, duties(4)) == []
    assert told(machine, Duties(epoch=2, seq=9, life=2)) == []
    assert machine.report().heard == heard == (1, 5)


def test_files_of_a_sync_that_is_over_are_dropped() -> None:
    machine = owner()

    effects = told(machine, Duties(epoch=1, seq=2, life=1))

    assert effects == [reducer.DropShares(3)]


def test_weights_are_offered_once_they_are_late_enough() -> None:
    machine = owner()
    assert told(machine, duties(2, offer=4)) == []

    effects = machine.handle(reducer.SharesMerged(4))

    assert effects == [reducer.OfferState()]
    assert machine.handle(reducer.SharesMerged(4)) == []


def averaged(state: OuterState, share: int, delta: float) -> AveragedShare:
    """Average one delta, the same everywhere, into a share of the first sync."""
    copy = state.share(0, share)
    values = np.full(copy.layout.trained_size, delta, dtype=np.float32)
    none = np.zeros(0, dtype=np.float32)
    return state.average(copy, [Delta(iter([values]), none, samples=8)])


def test_what_was_averaged_counts_only_if_the_sync_is_closed_so() -> None:
    step = OuterStep(outer.Outer(momentum=0.5), "mean", "float16")
    layout = tensors.Layout({"w": (6,)})
    start = np.ones(6, dtype=np.float32)
    momenta: list[Array] = []
    for given_out in ("mine", "another"):
        state = OuterState(layout, start.copy(), step, fragments=1, shares=2)
        done = averaged(state, 0, 0.1)
        state.keep(0, 0, "mine@n", done)
        assert (state.weights == start).all()
        assert not state.whole().momentum.any()

        update = Update(0, "u", 0, shares=(f"{given_out}@n", "other@n"))
        state.follow(update, slice(0, 6), np.full(6, -0.21, dtype=np.float32))
        state.settle(update)

        momenta.append(state.whole().momentum[:3])
        assert state.syncs == 1
        assert (state.share(1, 0).lost.any()) == (given_out == "mine")

    exact, followed = momenta
    np.testing.assert_array_equal(exact, np.full(3, 0.1, dtype=np.float32))
    assert (followed != exact).all()
