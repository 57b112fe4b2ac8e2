"""Training metrics: one JSON line per event, and `shoal.log`."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from typing import IO, TYPE_CHECKING, final

from shoal import task_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.train.diloco.events import Average, ReportMember
    from shoal.train.diloco.messages import Status
    from shoal.train.settings import TrainSettings


@final
class RunCurves:
    """Writes JSON lines to `out`, and reports metrics to the task's worker."""

    def __init__(self, settings: TrainSettings, out: IO[str] = sys.stdout) -> None:
        self._settings = settings
        self._out = out
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._last = self._began
        self._bytes = 0
        self._validated = -1
        warnings.filterwarnings("ignore", message="shoal.log has no effect")

    def say(self, text: str) -> None:
        """Write a remark for people."""
        with self._lock:
            print(text, file=sys.stderr, flush=True)

    def loaded(self, kind: str, syncs: int, parameters: int) -> None:
        """Log the weights that the run starts from."""
        self._write(
            {
                "event": "loaded",
                "kind": kind,
                "round": syncs / self._settings.fragments,
                "parameters": parameters,
            }
        )

    def reported(self, report: ReportMember) -> None:
        """Log what is wrong with a worker, for programs and for people."""
        done = report.sync / self._settings.fragments
        self._write(
            {
                "event": report.kind,
                "worker": report.worker,
                "round": done,
                "reason": report.reason,
            }
        )
        what = {
            "refused": "a contribution of {} is refused",
            "clipped": "a contribution of {} is scaled down",
            "left-out": "{} is left out",
            "alike": "{} repeats another worker",
            "relieved": "{} averages nothing for others any more",
        }[report.kind].format(report.worker)
        self.say(f"round {int(done) + 1}: {what}: {report.reason}")

    def sent(self, traffic: Mapping[str, int]) -> None:
        """Log all bytes that left a node for this run, by kind."""
        self._write(
            {
                "event": "sent",
                "bytes_sent_total": sum(traffic.values()),
                "bytes_sent_by_kind": dict(sorted(traffic.items())),
            }
        )

    def closed(self, order: Average, traffic: Mapping[str, int]) -> None:
        """Log a closed sync: contributions, and the bytes sent until now."""
        now = time.monotonic()
        parts = {each.worker: each.contribution for each in order.parts}
        samples = sum(each.samples for each in order.parts)  # as far as they count
        total = sum(traffic.values())
        sent, self._bytes = total - self._bytes, total
        loss = sum(each.contribution.loss * each.samples for each in order.parts)
        done = (order.sync + 1) / self._settings.fragments
        took_s = max(1e-9, now - self._last)
        figures = {
            "round": done,
            "loss": loss / max(1, samples),
            "samples_per_s": samples / took_s,
            "bytes_sent": float(sent),
            "bytes_sent_total": float(total),
            "workers": float(len(parts)),
        }
        if tokens := sum(part.tokens for part in parts.values()):
            figures["tokens_per_s"] = tokens / took_s
        workers = {
            name: {
                "steps": part.steps,
                "samples": part.samples,
                "tokens": part.tokens,
                "loss": part.loss,
                "bytes_sent": part.bytes,
                "busy": min(1.0, part.seconds / took_s),
            }
            for name, part in parts.items()
        }
        self._last = now
        self._write(
            {
                "event": "round",
                **figures,
                "seconds": now - self._began,
                "by_worker": workers,
                "bytes_sent_by_kind": dict(sorted(traffic.items())),
                "missing": list(order.missing),
                "refused": order.refused,
            }
        )
        task_metrics.log(
            figures, step=round(done), progress=done / self._settings.rounds
        )

    def validated(self, status: Status) -> None:
        """Log the validation of the shared weights by a worker."""
        if status.validated <= self._validated:
            return
        self._validated = status.validated
        done = status.validated / self._settings.fragments
        figures = {f"validation_{k}": v for k, v in status.validation.items()}
        self._write({"event": "validation", "round": done, **figures})
        task_metrics.log(figures)

    def _write(self, fields: dict[str, object]) -> None:
        with self._lock:
            line = json.dumps(task_metrics.as_json(fields), allow_nan=False)
            print(line, file=self._out, flush=True)
