"""What an aggregator knows of a thousand workers costs little to keep."""

from collections import Counter

from shoal.train.diloco import events, rounds
from shoal.train.diloco.messages import Status
from shoal.train.diloco.roster.attendance import Attendance, Judgement
from shoal.train.diloco.rules import RoundRules

WORKERS = 256


def test_only_those_of_whom_there_is_news_are_judged_again() -> None:
    asked: Counter[str] = Counter()
    awaited = {"a", "b"}

    def judge(worker: str) -> Judgement:
        asked[worker] += 1
        return Judgement(takes_part=True, is_missing=worker in awaited)

    found = Attendance(judge)
    found.refresh(("a", "b"), (1,))
    before = found.version
    awaited.discard("a")
    found.note("a")
    found.refresh(("a", "b"), (1,))
    assert (dict(found.missing), dict(asked)) == ({"b": None}, {"a": 2, "b": 1})
    assert found.version > before

    found.refresh(("b",), (2,))

    assert dict(found.taking_part) == {"b": None}


def test_a_sign_of_life_of_one_worker_does_not_concern_all_others() -> None:
    rules = RoundRules(rounds=5, inner_steps=8, quorum=64, workers=WORKERS)
    machine = rounds.Rounds(rules, epoch=1)
    said = [
        Status(worker=f"w{n:04}", life=1, seq=1, initial="w0", loaded=True)
        for n in range(WORKERS)
    ]
    for status in said:
        machine.handle(events.StatusReceived(status), 0.0)
    machine.handle(events.Loaded(0), 1.0)
    judged: Counter[str] = Counter()
    judge = machine._attendance._judge

    def counting(worker: str) -> Judgement:
        judged[worker] += 1
        return judge(worker)

    machine._attendance._judge = counting
    machine.next_deadline()
    judged.clear()

    for seq in (2, 3):
        alive = Status(worker="w0007", life=1, seq=seq, initial="w0", loaded=True)
        machine.handle(events.StatusReceived(alive), 1.0 + seq)
        machine.next_deadline()

    assert set(judged) == {"w0007"}
    assert len(machine.taking_part) == WORKERS
