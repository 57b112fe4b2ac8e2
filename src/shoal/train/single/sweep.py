"""The recipe `sweep`: trials of one program, and a judge that stops poor ones.

The judge is a task of its own (`judge`), the trials (`trials`) are as many as the sweep
has points. The judge ends when all trials have, and leaves out/best.json.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal import task_metrics
from shoal.errors import ShoalError
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import params_of, settings_of
from shoal.train.single.halving import Halving, HalvingDecision, TrialReport, Verdict
from shoal.train.task_context import TaskContext

if TYPE_CHECKING:
    from shoal.train.exchange import Exchange

JUDGE: Final = "judge.0"
ASK_AGAIN_S: Final = 2.0
GIVE_UP_S: Final = 600.0
LINGER_S: Final = 5.0
OUT: Final = Path("out")

_REPORT: Final = msgspec.msgpack.Decoder(TrialReport)
_DECISION: Final = msgspec.msgpack.Decoder(HalvingDecision)


def main() -> None:
    """Run as the judge, or as a trial."""
    around = TaskContext.of(os.environ)
    params = params_of(os.environ)
    if around.name == JUDGE:
        settings = settings_of(params)
        halving = Halving(settings.first_rung, settings.eta)
        run_judge(around.exchange(), halving, settings.trials)
        return
    run_program(str(params.get("program", "digits")))


def run_judge(exchange: Exchange, halving: Halving, trials: int) -> None:
    """Answer reports until all trials are over, and a little longer."""
    quiet_since = time.monotonic()
    while len(halving.over()) < trials or time.monotonic() < quiet_since + LINGER_S:
        mail = exchange.receive(timeout_s=ASK_AGAIN_S / 2)
        if mail is None:
            continue
        try:
            report = _REPORT.decode(mail.data)
        except msgspec.MsgspecError:
            continue
        if report.trial != mail.sender:
            continue
        quiet_since = time.monotonic()
        verdict = halving.judge(report)
        decision = HalvingDecision(rounds=report.rounds, verdict=verdict)
        exchange.send(mail.sender, msgspec.msgpack.encode(decision))
        _tell(halving, report, verdict, trials)
    best = halving.best()
    OUT.mkdir(exist_ok=True)
    text = json.dumps(msgspec.to_builtins(best), indent=2)
    (OUT / "best.json").write_text(text + "\n")
    print(json.dumps({"event": "best", **msgspec.to_builtins(best)}), flush=True)


def _tell(halving: Halving, report: TrialReport, verdict: Verdict, trials: int) -> None:
    over = len(halving.over())
    fields = msgspec.to_builtins(report)
    print(json.dumps({"event": "trial", **fields, "verdict": verdict}), flush=True)
    best = halving.best()
    assert best is not None
    task_metrics.log({"best": best.figure, "over": float(over)}, progress=over / trials)


@final
class Trial:
    """A trial's connection to its judge."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def report(self, report: TrialReport) -> Verdict:
        """Ask whether to go on, until there is an answer."""
        until = time.monotonic() + GIVE_UP_S
        data = msgspec.msgpack.encode(
            msgspec.structs.replace(report, trial=self._exchange.name)
        )
        while time.monotonic() < until:
            self._exchange.send(JUDGE, data)
            asked = time.monotonic()
            while time.monotonic() < asked + ASK_AGAIN_S:
                mail = self._exchange.receive(timeout_s=ASK_AGAIN_S / 4)
                if mail is None or mail.sender != JUDGE:
                    continue
                decision = _DECISION.decode(mail.data)
                if decision.rounds == report.rounds:
                    return decision.verdict
            if self._exchange.has_ended(JUDGE):
                return "stop"
        raise ShoalError("the judge does not answer", because=f"for {GIVE_UP_S:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
