# pyright: basic
# torch describes its types only in part.
"""A loop whose gradients are averaged over all ranks after every step: torch's DDP.

All ranks hold the same weights, and each keeps its own copy of the latest checkpoint.
When the ranks come together again, after one of them was lost, the rank with the latest
gives it to all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, final

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from shoal.train.checkpoints import Checkpoints
from shoal.train.counted_run import CountedRun
from shoal.train.devices import backend_of, peak_figures
from shoal.train.gangs import local_ranks
from shoal.train.gangs.group_session import meet_here
from shoal.train.run_log import OUT, RunLog, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.train.checkpoints import Stateful
    from shoal.train.run_log import Validate
    from shoal.train.settings import TrainSettings


@final
class DataParallelRun(CountedRun):
    """One rank of a DDP run; its environment is set as by torchrun."""

    def __init__(
        self,
        model: torch.nn.Module,
        settings: TrainSettings,
        keep: Sequence[Stateful],
        validate: Validate | None,
    ) -> None:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        super().__init__(settings, rank, world)
        self._local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._plain = model
        self._validate = validate
        self._telling = RunLog()
        self._checkpoints = Checkpoints([model, *keep])
        self._device = next(model.parameters()).device
        if local_ranks.is_rank(os.environ):
            meet_here(self._device)
        else:
            distributed.init_process_group(backend_of(self._device))
        self._agree()
        ids = [self._device] if self._device.type == "cuda" else None
        self.model: torch.nn.Module = DistributedDataParallel(model, device_ids=ids)

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Count a step; save a checkpoint and validate now and then."""
        ended = self._steps.add()
        first = self.rank == 0
        if first:
            sent = 2 * (self.world - 1) * 4 * _size(self._plain)
            figures = peak_figures(self._device)
            self._telling.step(
                samples * self.world,
                loss,
                tokens * self.world,
                bytes_sent=float(sent),
                **figures,
            )
        if ended is None:
            return
        if ended.saves or ended.is_last:
            self._keep()
        if first and ended.validates and self._validate is not None:
            figures = {f"validation_{k}": v for k, v in self._validate().items()}
            fields = {"event": "validation", "round": ended.number}
            self._telling.tell({**fields, **figures})

    def _keep(self) -> None:
        """Keep a checkpoint, here and elsewhere.

        Each task does so, though all have the same weights: any of them may be the one
        that is started again.
        """
        if self._local_rank == 0:
            self._checkpoints.save(self.global_step, elsewhere=True)

    def __enter__(self) -> DataParallelRun:
        return self

    def __exit__(self, *exception: object) -> None:
        """Write the weights to the output folder, and leave the process group."""
        OUT.mkdir(exist_ok=True)
        if exception[0] is None and self.rank == 0:
            save(self._plain)
        distributed.destroy_process_group()

    def _agree(self) -> None:
        """Resume from the latest checkpoint that any rank has."""
        own = self._checkpoints.find()
        steps: list[Any] = [None] * self.world
        distributed.all_gather_object(steps, int(own["step"]) if own else 0)
        latest = max(steps)
        if latest == 0:
            return
        source = steps.index(latest)
        shared = [own if self.rank == source else None]
        distributed.broadcast_object_list(shared, src=source)
        state = shared[0]
        assert state is not None
        self._steps.done = self._checkpoints.restore(state)
        if self.rank == 0:
            fields = {"event": "resumed", "step": self.global_step, "ranks": self.world}
            self._telling.tell(fields)


def _size(model: torch.nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())
