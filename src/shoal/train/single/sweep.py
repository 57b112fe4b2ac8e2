"""The recipe `sweep`: trials of one program, and a judge that stops poor ones.

The judge is a task of its own (`judge`), the trials (`trials`) are as many as the sweep
has points. The judge ends when all trials have, and leaves out/best.json. A trial that
raises says so before it ends; one that is killed cannot. So the judge asks after silent
trials: only when the scheduler says that one has ended for good is it taken for failed.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal import task_metrics
from shoal.errors import ShoalError
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import params_of, settings_of
from shoal.train.single.halving import (
    Halving,
    HalvingDecision,
    TrialFailed,
    TrialReport,
    Verdict,
)
from shoal.train.task_context import TaskContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.train.exchange import TaskLetter, TaskMailbox

JUDGE: Final = "judge.0"
TRIALS: Final = "trials"
ASK_AGAIN_S: Final = 2.0
ASKED_AT_ONCE: Final = 8
ASK_AFTER_S: Final = 5.0
"""So many silent trials are asked after so often: few letters wait for absent ones."""

GIVE_UP_S: Final = 600.0
LINGER_S: Final = 5.0
OUT: Final = Path("out")

_REPORT: Final = msgspec.msgpack.Decoder(TrialReport | TrialFailed)
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
    try:
        run_program(str(params.get("program", "digits")))
    except Exception as error:
        said = TrialFailed(trial=around.name, why=f"{type(error).__name__}: {error}")
        around.exchange().send(JUDGE, msgspec.msgpack.encode(said))
        raise


def run_judge(exchange: TaskMailbox, halving: Halving, trials: int) -> None:
    """Answer reports until all trials are over, and a little longer; tell the best."""
    names = [f"{TRIALS}.{number}" for number in range(trials)]
    silent = SilentTrials(exchange, names)
    quiet_since = time.monotonic()
    while len(halving.over()) < trials or time.monotonic() < quiet_since + LINGER_S:
        mail = exchange.receive(timeout_s=ASK_AGAIN_S / 2)
        for trial, why in silent.ended(halving.over(), time.monotonic()).items():
            halving.fail(trial, why)
            fields = {"event": "failed", "trial": trial, "why": why}
            print(json.dumps(fields), flush=True)
        report = _report_in(mail) if mail is not None else None
        if isinstance(report, TrialFailed):
            silent.suspect(report)
        elif report is not None:
            quiet_since = time.monotonic()
            silent.heard(report.trial)
            verdict = halving.judge(report)
            decision = HalvingDecision(rounds=report.rounds, verdict=verdict)
            exchange.send(report.trial, msgspec.msgpack.encode(decision))
            _tell(halving, report, verdict, trials)
    _conclude(halving)


def _report_in(mail: TaskLetter) -> TrialReport | TrialFailed | None:
    try:
        report = _REPORT.decode(mail.data)
    except msgspec.MsgspecError:
        return None
    return report if report.trial == mail.sender else None


def _conclude(halving: Halving) -> None:
    best = halving.best()
    if best is None:
        raise ShoalError(
            "no trial has a result",
            because="; ".join(
                f"{trial}: {why}" for trial, why in halving.failed.items()
            ),
            hint="`shoal logs` says more; a trial reports what `validate` measures",
        )
    fields = {**_plain(best), "failed": halving.failed}
    OUT.mkdir(exist_ok=True)
    (OUT / "best.json").write_text(json.dumps(fields, indent=2) + "\n")
    print(json.dumps({"event": "best", **fields}), flush=True)


def _tell(halving: Halving, report: TrialReport, verdict: Verdict, trials: int) -> None:
    over = len(halving.over())
    fields = {"event": "trial", **_plain(report), "verdict": verdict}
    print(json.dumps(fields), flush=True)
    best = halving.best()
    assert best is not None
    task_metrics.log({"best": best.figure, "over": float(over)}, progress=over / trials)


def _plain(report: TrialReport) -> dict[str, object]:
    """Return a report as JSON knows it: a loss that is no number is null."""
    figure = report.figure if math.isfinite(report.figure) else None
    return {**msgspec.to_builtins(report), "figure": figure}


@final
class SilentTrials:
    """Finds out which of the trials that say nothing have ended for good.

    A letter is an inquiry: to a task that has ended, it comes back.
    """

    def __init__(self, exchange: TaskMailbox, trials: Sequence[str]) -> None:
        self._exchange = exchange
        self._trials = trials
        self._suspects: dict[str, str] = {}  # with what they said last
        self._asked_at = time.monotonic()
        self._asked = 0  # up to which trial, in turn

    def suspect(self, last: TrialFailed) -> None:
        """Note that a trial said that it fails, and ask after it."""
        self._suspects[last.trial] = last.why
        self._ask(last.trial)

    def heard(self, trial: str) -> None:
        """Note that a trial has reported: it was started again."""
        self._suspects.pop(trial, None)

    def ended(self, over: Sequence[str], now: float) -> dict[str, str]:
        """Return trials that ended and are not over, and why; ask after others."""
        open_ = [trial for trial in self._trials if trial not in over]
        found = [trial for trial in open_ if self._exchange.has_ended(trial)]
        pause_s = ASK_AGAIN_S / 2 if self._suspects else ASK_AFTER_S
        if now - self._asked_at >= pause_s:
            self._asked_at = now
            suspects = [trial for trial in open_ if trial in self._suspects]
            first = self._asked % max(1, len(open_))
            self._asked += ASKED_AT_ONCE
            for trial in (suspects or [*open_[first:], *open_[:first]])[:ASKED_AT_ONCE]:
                self._ask(trial)
        return {t: self._suspects.pop(t, "it ended without a result") for t in found}

    def _ask(self, trial: str) -> None:
        nothing = HalvingDecision(rounds=0, verdict="go-on")
        self._exchange.send(trial, msgspec.msgpack.encode(nothing))


@final
class Trial:
    """A trial's connection to its judge."""

    def __init__(self, exchange: TaskMailbox) -> None:
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
