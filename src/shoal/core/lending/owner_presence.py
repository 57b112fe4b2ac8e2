"""Whether a machine's owner uses it, so that tasks of others must wait.

Theory of operation. The host looks at the owner every second or so (`OwnerObserved`):
input at terminals and the desktop, what programs other than tasks do on CPUs and GPUs,
the battery and the clock. This machine compares that with the owner's `LendRule`:

    paused --all conditions hold--> lent --one does not hold any more--> paused

- Input, or a busy program if the rule says `idle`, makes the owner *present* at once;
  the owner is away again after `away_after_s` without either.
- An owner who comes back soon after others were let in would make tasks start and stop
  all the time. So the second of two loans shorter than `SHORT_LOAN_S`, and each further
  one, doubles `away_after_s`, up to `AWAY_MAX_S`; a longer loan, or `FORGET_S` without
  a short one, resets it.
- A program is busy above `BUSY_MILLI` and remains so until it is below `CALM_MILLI`.
- Whoever does not look does not lend: without an observation for `SILENCE_S` the
  machine is paused.

A rule without conditions needs no observation. Nothing is durable: a node that starts
is paused until the first observation. Members of other owners learn that the owner uses
the machine (`reason`), and not how that was noticed (`sign`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from shoal.core.lending.events import OwnerObserved
    from shoal.core.lending.lend_rule import LendRule

SHORT_LOAN_S: Final = 120.0
AWAY_MAX_S: Final = 900.0
FORGET_S: Final = 3_600.0
BUSY_MILLI: Final = 500
CALM_MILLI: Final = 250
SILENCE_S: Final = 15.0

STARTING: Final = "this worker does not know yet whether its owner uses it"
USED: Final = "the owner is using the machine"
UNSEEN: Final = "this worker cannot tell whether its owner uses it"
ON_BATTERY: Final = "the machine runs on battery, and is lent when it is plugged in"


@final
class OwnerPresence:
    """Decides whether tasks of other owners may run."""

    def __init__(self, rule: LendRule) -> None:
        self.rule = rule
        self.reason = "" if rule.is_always else STARTING  # why it is not lent now
        self.sign = ""  # how the owner was noticed, for the owner's own eyes
        self.away_after_s = rule.idle_s or 0.0
        self._seen: OwnerObserved | None = None
        self._seen_at = 0.0
        self._active_at: float | None = None  # when the owner last did something
        self._busy = False
        self._lent_at = 0.0
        self._cut_at: float | None = None  # when a loan was last cut short

    @property
    def is_lent(self) -> bool:
        """Whether tasks of other owners may run now."""
        return not self.reason

    def observed(self, event: OwnerObserved, now: float) -> bool:
        """Take in an observation; return whether that begins or ends a loan."""
        if self.rule.is_always:
            return False
        self._seen, self._seen_at = event, now
        limit = CALM_MILLI if self._busy else BUSY_MILLI
        self._busy = self.rule.calm and max(event.cpu_milli, event.gpu_milli) >= limit
        if event.input_idle_s is not None:
            input_at = now - event.input_idle_s
            self._active_at = max(self._active_at or input_at, input_at)
        if self._busy:
            self._active_at = now
        return self._judge(now)

    def next_deadline(self) -> float | None:
        """When silence would end the loan, if one goes on."""
        if self.rule.is_always or not self.is_lent:
            return None
        return self._seen_at + SILENCE_S

    def due(self, now: float) -> bool:
        """End a loan that nobody watches; return whether that was so."""
        late = self.next_deadline()
        if late is None or now < late:
            return False
        self._seen = None
        return self._judge(now)

    def _judge(self, now: float) -> bool:
        before, self.reason = self.reason, self._why_not(now)
        if bool(before) == bool(self.reason):
            return before != self.reason
        if self.is_lent:
            self._lent_at = now
        elif self.reason == USED:
            self._end_loan(now)
        return True

    def _end_loan(self, now: float) -> None:
        """Wait longer next time if this loan was short, as the last one was."""
        base_s, cut_at = self.rule.idle_s or 0.0, self._cut_at
        is_short = now - self._lent_at < SHORT_LOAN_S
        self._cut_at = now if is_short else None
        if is_short and cut_at is not None and now - cut_at <= FORGET_S:
            longest_s = max(base_s, AWAY_MAX_S)
            self.away_after_s = min(2.0 * self.away_after_s, longest_s)
        else:
            self.away_after_s = base_s

    def _why_not(self, now: float) -> str:
        rule, seen = self.rule, self._seen
        self.sign = ""
        if seen is None:
            return UNSEEN
        if rule.windows and not any(w.holds(seen.week_minute) for w in rule.windows):
            times = ", ".join(str(each) for each in rule.windows)
            return f"the machine is lent {times} only"
        if rule.plugged_in and seen.on_battery:
            return ON_BATTERY
        if rule.idle_s is None:
            return ""
        if self._active_at is None:
            return ""
        away_s = now - self._active_at
        if seen.input_idle_s is not None:
            # Not a bit longer: a difference of two times is rounded.
            away_s = min(away_s, seen.input_idle_s)
        if away_s >= self.away_after_s:
            return ""
        self.sign = self._how(seen, away_s)
        return USED

    def _how(self, seen: OwnerObserved, ago_s: float) -> str:
        if self._busy:
            if seen.gpu_milli > seen.cpu_milli:
                return f"other programs use {seen.gpu_milli / 10:.0f} % of a GPU"
            return f"other programs use {seen.cpu_milli / 1_000:.1f} CPUs"
        idle_s = seen.input_idle_s
        if idle_s is not None and idle_s <= ago_s + 1.0:
            return f"input at {seen.input_at or 'a terminal'} {idle_s:.0f} s ago"
        return f"other programs were busy {ago_s:.0f} s ago"
