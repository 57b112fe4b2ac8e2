"""Pass what `shoal.log` reports on to Weights & Biases, MLflow or TensorBoard.

SHOAL_SINKS names them, such as `tensorboard,wandb`; each is configured as it always is,
by variables of its own. A sink may be slow, absent or broken, and training must not
notice: one thread of its own feeds all sinks from a short queue. What does not fit is
dropped, a sink that raises is not asked again, and both are said once.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import queue
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLE: Final = "SHOAL_SINKS"
REPORTS_MAX: Final = 256
"""Reports that wait for slow sinks."""

CLOSE_S: Final = 30.0
"""How long the end of a task waits for sinks to take what is left: a short task may end
while the library of a sink is still being imported."""

FOLDER: Final = "out/tensorboard"


class MetricSink(Protocol):
    """Takes metrics, in a thread of its own."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Take the metrics of one step."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


@final
class WandbSink:
    """A run of Weights & Biases, named by task."""

    def __init__(self, task: str) -> None:
        wandb: Any = importlib.import_module("wandb")  # It may not be installed.
        self._run: Any = wandb.init(
            name=task,
            group=os.environ.get("SHOAL_JOB_ID"),
            settings=wandb.Settings(console="off"),  # The node keeps what it prints.
        )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log them as one step."""
        self._run.log({**metrics, "step": step})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


@final
class MlflowSink:
    """A run of MLflow, named by task."""

    def __init__(self, task: str) -> None:
        self._client: Any = importlib.import_module("mlflow").MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "shoal")
        found = self._client.get_experiment_by_name(name)
        id_ = found.experiment_id if found else self._client.create_experiment(name)
        self._run = self._client.create_run(id_, run_name=task).info.run_id

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log each metric."""
        for name, value in metrics.items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)


@final
class TensorBoardSink:
    """Event files in the outputs of the task."""

    def __init__(self, task: str) -> None:
        module = importlib.import_module("torch.utils.tensorboard")
        folder = os.environ.get("TENSORBOARD_LOGDIR", FOLDER)
        self._writer: Any = module.SummaryWriter(f"{folder}/{task}")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write one event for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


SINKS: Final[Mapping[str, Callable[[str], MetricSink]]] = {
    "mlflow": MlflowSink,
    "tensorboard": TensorBoardSink,
    "wandb": WandbSink,
}


_OF_PROCESS: Final[dict[int, MetricSinks]] = {}


def of_this_process() -> MetricSinks:
    """Return the sinks that SHOAL_SINKS names; a forked child has its own."""
    pid = os.getpid()
    if pid not in _OF_PROCESS:
        _OF_PROCESS[pid] = MetricSinks(os.environ.get(VARIABLE, ""))
    return _OF_PROCESS[pid]


@final
class MetricSinks:
    """Feeds sinks from a thread that starts with the first report."""

    def __init__(
        self, names: str, makers: Mapping[str, Callable[[str], MetricSink]] = SINKS
    ) -> None:
        self._names = [name.strip() for name in names.split(",") if name.strip()]
        self._makers = makers
        self._reports: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue(
            REPORTS_MAX
        )
        self._steps = 0
        self._is_full = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def log(self, metrics: Mapping[str, float], step: int | None) -> None:
        """Pass metrics on, unless too many wait; return at once."""
        if not self._names:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._feed, daemon=True)
                self._thread.start()
                _at_end(self.close)
            self._steps = self._steps + 1 if step is None else step
            report = (_numbers(metrics), self._steps)
        try:
            self._reports.put_nowait(report)
        except queue.Full:
            if not self._is_full:
                self._is_full = True
                _say("the sinks of metrics are too slow: some are left out")

    def close(self) -> None:
        """Let the sinks write what is left, for a little while."""
        if self._thread is None:
            return
        until = time.monotonic() + CLOSE_S
        with contextlib.suppress(queue.Full):
            self._reports.put(None, timeout=CLOSE_S)
            self._thread.join(max(0.0, until - time.monotonic()))

    def _feed(self) -> None:
        task = os.environ.get("SHOAL_TASK_ID", "local")
        sinks: dict[str, MetricSink] = {}
        for name in self._names:
            made = self._guarded(name, partial(self._make, name, task))
            if made is not None:
                sinks[name] = made
        while (report := self._reports.get()) is not None:
            for name, sink in list(sinks.items()):
                if not self._guarded(name, partial(_take, sink, report)):
                    del sinks[name]
        for name, sink in sinks.items():
            self._guarded(name, sink.close)

    def _make(self, name: str, task: str) -> MetricSink:
        maker = self._makers.get(name)
        if maker is None:
            raise ValueError(f"the sinks are {', '.join(sorted(self._makers))}")
        return maker(task)

    def _guarded(self, name: str, act: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Do something that may raise anything; say what, and return None then."""
        try:
            return act()
        except BaseException as error:  # noqa: BLE001 - No sink ends a training.
            _say(f"{name} gets no metrics: {type(error).__name__}: {error}")
            return None


def _take(sink: MetricSink, report: tuple[dict[str, float], int]) -> bool:
    sink.log(*report)
    return True


def _at_end(close: Callable[[], None]) -> None:
    """Call `close` at the end of the process, while threads can still be started.

    Libraries start threads by executors, which can be made until their own end. So they
    are imported first, and their end comes after ours.
    """
    for module in ("concurrent.futures.process", "concurrent.futures.thread"):
        importlib.import_module(module)
    register = getattr(threading, "_register_atexit", atexit.register)
    register(close)


def _numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return what is a number; a tensor is one, too."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            found[str(name)] = float(value)
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"shoal: {text}\n")
    sys.stderr.flush()
