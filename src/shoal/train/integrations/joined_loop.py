# pyright: basic
# torch describes its types only in part.
"""A training loop that is ours only in its steps: what all callbacks share.

By the recipe of the task it joins a run (`join`), or only reports what it is told, or,
outside of a task, does nothing at all. So a script with a callback runs anywhere. For a
loop that no library runs, such as one with Accelerate, it takes three calls:

    loop = join_loop(accelerator.unwrap_model(model), keep=[optimizer])
    for x, y in loop.batches(loader):
        ...
        loop.step(samples=len(x), loss=loss.item())
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final, TypeVar, final

from shoal.errors import UsageError
from shoal.train.arguments import worker_seed
from shoal.train.join import TrainingRun, join
from shoal.train.run_log import RunLog
from shoal.train.settings import params_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch

    from shoal.train.checkpoints import Stateful
    from shoal.train.run_log import Validate

__all__ = ["JOINED", "JoinedLoop", "join_loop", "worker_seed"]

T = TypeVar("T")

JOINED: Final = frozenset({"diloco", "sweep", "train"})
"""Recipes whose run decides how long a loop goes on. Ranks of `ddp` meet by themselves:
the libraries find the variables of torchrun, and wrap the model."""


@final
class JoinedLoop:
    """One training loop of another library, from its begin to its end."""

    def __init__(self) -> None:
        self._run: TrainingRun | None = None
        self._log: RunLog | None = None
        self._finished = False

    def begin(
        self,
        model: torch.nn.Module,
        keep: Sequence[Stateful],
        validate: Validate | None,
        steps_max: float,
    ) -> None:
        """Join the run of this task, if there is one.

        Raises `UsageError` if the library would stop before the run does: the others
        would wait for the rest of it.
        """
        if os.environ.get("SHOAL_RECIPE", "") not in JOINED:
            self._log = RunLog() if os.environ.get("SHOAL_JOB_ID") else None
            return
        params = params_of(os.environ)
        settings = settings_of(params)
        needed = settings.rounds * settings.inner_steps
        if steps_max < needed:
            raise UsageError(
                f"this loop would stop after {steps_max:.0f} steps",
                because=f"the job has {settings.rounds} rounds of "
                f"{settings.inner_steps} steps, {needed} in all",
                hint="let it run longer, or give the job fewer `rounds`",
            )
        run = join(model, params, validate=validate, keep=keep)
        self._run = run.__enter__()

    def step(self, samples: int, loss: float) -> bool:
        """Note a step of the optimizer; return whether the loop shall stop.

        With the last step the run is left: its weights are written, as they are now.
        """
        if self._run is not None:
            self._run.step(samples=samples, loss=loss)
            self._finished = self._run.finished
            if self._finished:
                self.end()
        elif self._log is not None:
            self._log.step(samples, loss)
        return self._finished

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield what `loader` does, until the run is over."""
        for batch in loader:
            if self._finished:
                return
            yield batch

    def end(self, *exception: object) -> None:
        """Leave the run, if that is still to be done."""
        run, self._run = self._run, None
        if run is not None:
            run.__exit__(*(exception or (None, None, None)))


def join_loop(
    model: torch.nn.Module,
    *,
    keep: Sequence[Stateful] = (),
    validate: Validate | None = None,
) -> JoinedLoop:
    """Join a loop that no library runs."""
    loop = JoinedLoop()
    loop.begin(model, keep, validate, steps_max=math.inf)
    return loop
