"""Whatever a sink does, training goes on at its own speed."""

import threading
import time
from collections.abc import Mapping

import pytest

from shoal import metric_sinks
from shoal.metric_sinks import REPORTS_MAX, MetricSinks


class Notes:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []
        self.closed = False

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.logged.append((dict(metrics), step))

    def close(self) -> None:
        self.closed = True


class Broken(Notes):
    """A sink whose service is gone."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        super().log(metrics, step)
        raise SystemExit("no")  # Not even this ends a training.


class Stuck(Notes):
    """A sink whose service never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.free.wait()


def test_every_sink_gets_every_report_and_is_closed() -> None:
    one, two = Notes(), Notes()
    sinks = MetricSinks("one, two", {"one": lambda _: one, "two": lambda _: two})

    sinks.log({"loss": 2.0}, None)
    sinks.log({"loss": 1, "junk": object()}, 7)  # type: ignore[dict-item]
    sinks.close()

    assert one.logged == two.logged == [({"loss": 2.0}, 1), ({"loss": 1.0}, 7)]
    assert one.closed
    assert two.closed


def test_a_sink_that_fails_or_is_unknown_is_named_once_and_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = Broken()

    def absent(_task: str) -> Notes:
        raise ModuleNotFoundError("No module named 'wandb'")

    makers = {"broken": lambda _: broken, "absent": absent}
    sinks = MetricSinks("broken,absent,nonsense", makers)
    for step in range(3):
        sinks.log({"loss": 1.0}, step)
    sinks.close()

    assert len(broken.logged) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "shoal: absent gets no metrics: ModuleNotFoundError: No module named 'wandb'",
        "shoal: nonsense gets no metrics: ValueError: the sinks are absent, broken",
        "shoal: broken gets no metrics: SystemExit: no",
    ]


def test_a_sink_that_is_stuck_never_blocks_and_what_is_too_much_is_dropped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_sinks, "CLOSE_S", 0.01)
    stuck = Stuck()
    sinks = MetricSinks("stuck", {"stuck": lambda _: stuck})

    began = time.monotonic()
    for step in range(10 * REPORTS_MAX):
        sinks.log({"loss": 1.0}, step)
    sinks.close()
    took_s = time.monotonic() - began

    assert took_s < 60, "it would have waited for ever"
    assert capsys.readouterr().err.count("too slow") == 1
    stuck.free.set()


def test_without_names_nothing_starts() -> None:
    before = threading.active_count()
    sinks = MetricSinks("", {})

    sinks.log({"loss": 1.0}, 1)
    sinks.close()

    assert threading.active_count() == before
