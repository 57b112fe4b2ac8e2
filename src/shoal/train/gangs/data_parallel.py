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
from shoal.train.devices import backend_of, peak_figures
from shoal.train.gangs import local_ranks
from shoal.train.gangs.group_session import meet_here
from shoal.train.run_log import OUT, RunLog, save
from shoal.train.sharding import shard_of

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from torch.utils.data import Subset

    from shoal.train.checkpoints import Stateful
    from shoal.train.run_log import Validate
    from shoal.train.settings import TrainSettings


@final
class DataParallelRun:
    """One rank of a DDP run; its environment is set as by torchrun."""

    def __init__(
        self,
        model: torch.nn.Module,
        settings: TrainSettings,
        keep: Sequence[Stateful],
        validate: Validate | None,
    ) -> None:
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.done = 0
        self._local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._plain = model
        self._settings = settings
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

    @property
    def round(self) -> int:
        """How many times `inner_steps` are done."""
        return self.done // self._settings.inner_steps

    @property
    def global_step(self) -> int:
        """How many steps are done."""
        return self.done

    def shard(self, dataset: Sized) -> Subset[Any]:
        """Return this rank's part; the ranks may be others after a loss."""
        return shard_of(dataset, self.rank, self.world)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.done >= self._settings.rounds * self._settings.inner_steps

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Count a step; save a checkpoint and validate now and then."""
        self.done += 1
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
        rounds, rest = divmod(self.done, self._settings.inner_steps)
        if rest:
            return
        last = self.finished
        if rounds % self._settings.checkpoint_every == 0 or last:
            self._keep()
        due = rounds % self._settings.validate_every == 0 or last
        if first and due and self._validate is not None:
            figures = {f"validation_{k}": v for k, v in self._validate().items()}
            self._telling.tell({"event": "validation", "round": rounds, **figures})

    def _keep(self) -> None:
        """Keep a checkpoint, here and elsewhere.

        Each task does so, though all have the same weights: any of them may be the one
        that is started again.
        """
        if self._local_rank == 0:
            self._checkpoints.save(self.done, elsewhere=True)

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
        self.done = self._checkpoints.restore(state)
        if self.rank == 0:
            fields = {"event": "resumed", "step": self.done, "ranks": self.world}
            self._telling.tell(fields)


def _size(model: torch.nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())
