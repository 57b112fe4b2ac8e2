"""The aggregator tells workers what they need, and no more."""

from shoal.train.diloco import rounds
from shoal.train.diloco.messages import Contribution, Directive, Status, Update


def told(effects: list[rounds.Effect]) -> dict[str, Directive]:
    return {
        e.worker: e.directive for e in effects if isinstance(e, rounds.DirectMember)
    }


def status(
    worker: str, seq: int, merged: int = 0, *syncs: int
) -> rounds.StatusReceived:
    contributions = tuple(
        Contribution(sync, f"{worker}-{sync}", 10, 8, 1.0) for sync in syncs
    )
    return rounds.StatusReceived(
        Status(
            worker=worker,
            life=1,
            seq=seq,
            merged=merged,
            initial="w0",
            contributions=contributions,
        )
    )


def running() -> rounds.Rounds:
    rules = rounds.RoundRules(rounds=5, inner_steps=8, quorum=2, workers=2)
    machine = rounds.Rounds(rules, epoch=1)
    machine.handle(status("a", 1), 0.0)
    machine.handle(status("b", 1), 0.0)
    machine.handle(rounds.Loaded(0, "w0", "c0"), 1.0)
    return machine


def close(
    machine: rounds.Rounds, sync: int, seq: int, now: float
) -> dict[str, Directive]:
    for worker in ("a", "b"):
        effects = machine.handle(status(worker, seq, sync, sync), now)
        for effect in effects:
            if isinstance(effect, rounds.Fetch):
                machine.handle(rounds.Fetched(effect.worker, effect.contribution), now)
    update = Update(sync, f"u{sync}", check=sync)
    return told(machine.handle(rounds.Averaged(update, f"w{sync}", f"c{sync}"), now))


def test_a_worker_is_told_the_outcome_that_it_waits_for() -> None:
    machine = running()

    directives = close(machine, sync=0, seq=2, now=5.0)

    for worker in ("a", "b"):
        assert [u.sync for u in directives[worker].updates] == [0]
        assert directives[worker].steps == {"1": 8}


def test_what_was_merged_is_not_told_again() -> None:
    machine = running()
    close(machine, sync=0, seq=2, now=5.0)

    directives = told(machine.handle(status("a", 3, 1), 6.0))

    assert directives["a"].updates == ()


def test_whoever_did_not_hear_is_told_again() -> None:
    machine = running()
    close(machine, sync=0, seq=2, now=5.0)

    first = told(machine.handle(status("a", 3), 6.0))["a"]
    again = told(machine.handle(status("a", 4), 7.0))["a"]

    assert again == first


def test_whoever_merged_another_outcome_takes_all_weights_anew() -> None:
    machine = running()
    close(machine, sync=0, seq=2, now=5.0)
    astray = Status(worker="a", life=1, seq=3, merged=1, check=999, initial="w0")

    directive = told(machine.handle(rounds.StatusReceived(astray), 6.0))["a"]

    assert directive.reload
    assert directive.weights == "w0"


def test_two_workers_keep_the_checkpoint_and_then_contributions_are_safe() -> None:
    machine = running()
    directives = close(machine, sync=0, seq=2, now=5.0)
    assert all(each.keep is not None for each in directives.values())
    kept = directives["a"].keep
    last: dict[str, Directive] = {}

    for worker in ("a", "b"):
        said = Status(
            worker=worker, life=1, seq=3, merged=1, initial="w0", holds=kept, check=0
        )
        last = told(machine.handle(rounds.StatusReceived(said), 6.0))

    assert last["b"].safe == 1
