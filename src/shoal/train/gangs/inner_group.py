# pyright: basic
# torch describes its types only in part.
"""A DiLoCo worker that is itself a group of ranks, whose gradients are averaged.

To the other workers the group is one, with the batches of all its ranks. Its first rank
talks to the aggregator; what it gets from there, weights or what a loop keeps, it gives
to the rest at once, so that all ranks are the same again before the next step.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from shoal.train.checkpoints import InnerParts
from shoal.train.devices import backend_of, peak_figures
from shoal.train.diloco.session import DilocoSession
from shoal.train.gangs import local_ranks
from shoal.train.run_log import RunLog
from shoal.train.sharding import own_seed, shard_of
from shoal.train.torch_weights import TorchWeights, buffer_tensors, trained_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized
    from pathlib import Path

    from torch.utils.data import Subset

    from shoal.train.checkpoints import Stateful
    from shoal.train.diloco.compression import Array
    from shoal.train.run_log import Validate
    from shoal.train.settings import TrainSettings
    from shoal.train.task_context import TaskContext

PATIENT: Final = timedelta(days=1)
"""Ranks wait while the first waits for other workers; a dead one is noticed at once."""


@final
class _NotedWeights:
    """Weights of a model, and how often they were set from outside."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._weights = TorchWeights(model)
        self.layout = self._weights.layout
        self.changes = 0

    def read(self, part: slice) -> Array:
        """Return a copy of a range."""
        return self._weights.read(part)

    def write(self, part: slice, values: Array) -> None:
        """Set a range."""
        self._weights.write(part, values)
        self.changes += 1


@final
class _NotedParts:
    """What a loop keeps, and how often it was taken from another worker."""

    def __init__(self, keep: Sequence[Stateful]) -> None:
        self._parts = InnerParts(keep)
        self.changes = 0

    def save(self, path: Path) -> None:
        """Write all parts to a file."""
        self._parts.save(path)

    def load(self, path: Path) -> None:
        """Take all parts from a file."""
        self._parts.load(path)
        self.changes += 1


@final
class GroupedRun:
    """One rank of a DiLoCo worker that consists of several."""

    def __init__(
        self,
        model: torch.nn.Module,
        settings: TrainSettings,
        around: TaskContext,
        keep: Sequence[Stateful],
        validate: Validate | None,
    ) -> None:
        local = int(os.environ[local_ranks.RANK])
        self._ranks = int(os.environ[local_ranks.WORLD])
        self.rank = around.index * self._ranks + local
        self.world = settings.workers * self._ranks
        self._device = next(model.parameters()).device
        distributed.init_process_group(
            backend_of(self._device),
            init_method=f"file://{os.environ[local_ranks.MEETING]}",
            rank=local,
            world_size=self._ranks,
            timeout=PATIENT,
        )
        ids = [self._device] if self._device.type == "cuda" else None
        self.model: torch.nn.Module = DistributedDataParallel(model, device_ids=ids)
        self._tensors = [*trained_tensors(model).values()]
        self._tensors += buffer_tensors(model).values()
        self._keep = keep
        self._weights, self._parts = _NotedWeights(model), _NotedParts(keep)
        self._telling = RunLog()
        self._shared = (0, 0)  # changes that all ranks have
        self._session: DilocoSession | None = None
        self.round = self.global_step = 0
        self.finished = False
        if local == 0:
            self._session = DilocoSession(
                around.exchange(),
                settings,
                life=around.life,
                aggregator=around.aggregator,
                weights=self._weights,
                validate=validate,
                inner=self._parts if keep else None,
            )

    def shard(self, dataset: Sized) -> Subset[Any]:
        """Return this rank's part: no rank of any worker has another of it."""
        return shard_of(dataset, self.rank, self.world)

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Note a step of all ranks; the first exchanges weights if it is time."""
        if (session := self._session) is not None:
            session.step(samples * self._ranks, loss, tokens * self._ranks)
            busy = session.computed_s / max(1e-9, session.computed_s + session.waited_s)
            self._telling.step(
                samples * self._ranks,
                loss,
                tokens * self._ranks,
                busy=busy,
                **peak_figures(self._device),
            )
        self._follow()

    def _follow(self) -> None:
        """Give all ranks what the first one got from other workers, if anything."""
        news = [0] * 5
        if (session := self._session) is not None:
            changes = self._weights.changes, self._parts.changes
            news = [session.finished, session.round, session.global_step, *changes]
        told = torch.tensor(news, dtype=torch.int64)
        distributed.broadcast(told, src=0)
        finished, self.round, self.global_step, *changed = told.tolist()
        self.finished = bool(finished)
        weights, parts = changed
        if weights != self._shared[0]:
            for tensor in self._tensors:
                distributed.broadcast(tensor, src=0)
        if parts != self._shared[1]:
            states: list[Any] = [part.state_dict() for part in self._keep]
            distributed.broadcast_object_list(states, src=0)
            for part, state in zip(self._keep, states, strict=True):
                part.load_state_dict(state)
        self._shared = weights, parts

    def __enter__(self) -> GroupedRun:
        if self._session is not None:
            self._session.__enter__()
        self._follow()
        own_seed(self.rank, self.global_step)
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave the other workers, and the group."""
        if self._session is not None:
            self._session.__exit__(*exception)
        distributed.destroy_process_group()
