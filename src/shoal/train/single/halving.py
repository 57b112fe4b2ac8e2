"""Successive halving of trials, as their results come in.

A trial reports at *rungs*, after `first`, `first * eta`, `first * eta ** 2` ... rounds.
At each it goes on if it is among the best of every `eta` that have reported there so
far. So no trial waits for the others, and trials may start whenever there is room
(asynchronous successive halving, arXiv 1810.05934).
"""

from __future__ import annotations

import math
from typing import Literal, final

import msgspec

Verdict = Literal["go-on", "stop"]


class TrialReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A trial's report: its figure after some rounds, and whether it is over."""

    trial: str
    rounds: int
    figure: float  # the smaller the better
    params: dict[str, float | int | str | bool] = {}
    over: bool = False


class TrialFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A trial's last words when its program raises; it may be started again."""

    trial: str
    why: str = ""


class HalvingDecision(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The judge's answer to a report after this many rounds."""

    rounds: int
    verdict: Verdict


@final
class Halving:
    """Judges trials. A repeated report gets the same answer."""

    def __init__(self, first: int, eta: int) -> None:
        assert first >= 1
        assert eta >= 2
        self.first = first
        self.eta = eta
        self.rungs: dict[int, dict[str, float]] = {}
        self.reports: dict[str, TrialReport] = {}  # the latest of each trial
        self.verdicts: dict[str, Verdict] = {}
        self.failed: dict[str, str] = {}  # with why
        self._decided: dict[tuple[str, int], Verdict] = {}

    def is_rung(self, rounds: int) -> bool:
        """Whether trials report after this many rounds."""
        rung = self.first
        while rung < rounds:
            rung *= self.eta
        return rung == rounds

    def judge(self, report: TrialReport) -> Verdict:
        """Take in a report; return whether to go on."""
        self.failed.pop(report.trial, None)  # It was started again.
        key = (report.trial, report.rounds)
        known = self.reports.get(report.trial)
        if known is None or report.rounds >= known.rounds:
            self.reports[report.trial] = report
        if report.over:
            self.verdicts.setdefault(report.trial, "go-on")
            return "stop"
        if key in self._decided:
            return self._decided[key]
        rung = self.rungs.setdefault(report.rounds, {})
        rung[report.trial] = _comparable(report.figure)
        kept = max(1, math.ceil(len(rung) / self.eta))
        best = sorted(rung.items(), key=lambda each: (each[1], each[0]))[:kept]
        goes_on = report.trial in [trial for trial, _ in best]
        verdict: Verdict = "go-on" if goes_on else "stop"
        self._decided[key] = verdict
        self.verdicts[report.trial] = verdict
        return verdict

    def fail(self, trial: str, why: str) -> None:
        """Take in that a trial ended without a result; one that is over stays so."""
        if trial not in self.over():
            self.failed[trial] = why
            self.reports.pop(trial, None)  # What it reported is no result.

    def over(self) -> list[str]:
        """Return the trials that have ended."""
        over = (trial for trial, last in self.reports.items() if last.over)
        return sorted({*over, *self.failed})

    def best(self) -> TrialReport | None:
        """Return the report of the best trial; the smallest name wins ties."""
        return min(
            self.reports.values(),
            key=lambda last: (_comparable(last.figure), last.trial),
            default=None,
        )


def _comparable(figure: float) -> float:
    """Treat a loss that is NaN as the worst."""
    return math.inf if math.isnan(figure) else figure
