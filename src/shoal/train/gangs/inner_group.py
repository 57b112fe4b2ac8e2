# pyright: basic
# torch describes its types only in part.
"""A DiLoCo worker that is a group of ranks, by torch's own DDP or FSDP.

To the other workers the group is one, with the batches of all its ranks. With DDP each
rank has the whole model, with FSDP a share of each weight and of what the optimizer
keeps of it: a model may be larger than a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import distributed
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from shoal.errors import UsageError
from shoal.train.devices import peak_figures
from shoal.train.gangs.group_session import GroupSession, meet
from shoal.train.run_log import RunLog
from shoal.train.sharding import own_seed, shard_of
from shoal.train.torch_weights import (
    TorchWeights,
    buffer_tensors,
    frozen_check,
    trained_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Sized

    from torch.utils.data import Subset

    from shoal.train.checkpoints import Stateful
    from shoal.train.run_log import Validate
    from shoal.train.settings import TrainSettings
    from shoal.train.task_context import TaskContext

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


@final
class ReplicatedModel:
    """A model that each rank has all of; gradients are averaged at every step."""

    def __init__(
        self, model: torch.nn.Module, keep: Sequence[Stateful], validate: Validate
    ) -> None:
        device = next(model.parameters()).device
        ids = [device] if device.type == "cuda" else None
        self.weights = TorchWeights.of(model)
        self.wrapped: torch.nn.Module = DistributedDataParallel(model, device_ids=ids)
        self._tensors = [*trained_tensors(model).values()]
        self._tensors += buffer_tensors(model).values()
        self._keep, self._validate = keep, validate

    def gather(self) -> None:
        """Do nothing: the first rank has all weights."""

    def scatter(self) -> None:
        """Give all ranks the weights of the first."""
        for tensor in self._tensors:
            distributed.broadcast(tensor, src=0)

    def validate(self) -> Mapping[str, float]:
        """Measure on the first rank, while the others wait."""
        return self._validate() if distributed.get_rank() == 0 else {}

    def inner(self) -> list[Any]:
        """Return what the loop keeps: it is the same on all ranks."""
        return [part.state_dict() for part in self._keep]

    def set_inner(self, states: list[Any]) -> None:
        """Take what the loop of another worker keeps."""
        for part, state in zip(self._keep, states, strict=True):
            part.load_state_dict(state)


@final
class ShardedModel:
    """A model of which each rank has a share, by `fully_shard`.

    The first rank has a copy of all weights in main memory besides, to talk about.
    """

    def __init__(
        self, model: torch.nn.Module, keep: Sequence[Stateful], validate: Validate
    ) -> None:
        before = dict(model.named_parameters())
        self._buffers = buffer_tensors(model)
        frozen = frozen_check(model)
        self._copies = {n: t.cpu().clone() for n, t in trained_tensors(model).items()}
        self.weights = TorchWeights(self._copies, self._buffers, frozen)
        ranks = distributed.get_world_size()
        device = next(model.parameters()).device.type
        fully_shard(model, mesh=init_device_mesh(device, (ranks,)))
        self.wrapped = model
        self._keep, self._validate = keep, validate
        after = dict(model.named_parameters())
        self._shares = {n: after[n].detach() for n in self._copies}
        _follow(keep, {id(before[name]): after[name] for name in before})

    def gather(self) -> None:
        """Bring the shares of all ranks together."""
        for name, share in self._shares.items():
            assert isinstance(share, DTensor)
            whole = share.full_tensor()
            if distributed.get_rank() == 0:
                self._copies[name].copy_(whole)

    def scatter(self) -> None:
        """Give each rank its share of the first rank's copy."""
        for name, share in self._shares.items():
            assert isinstance(share, DTensor)
            whole = self._copies[name].to(share.device)
            share.copy_(distribute_tensor(whole, share.device_mesh, share.placements))
        for tensor in self._buffers.values():
            distributed.broadcast(tensor, src=0)

    def validate(self) -> Mapping[str, float]:
        """Measure on all ranks: none can compute without the others."""
        return self._validate()

    def inner(self) -> list[Any]:
        """Return what the loop keeps, with all shares of it."""
        return [
            get_optimizer_state_dict(self.wrapped, part, options=WHOLE)
            if isinstance(part, torch.optim.Optimizer)
            else part.state_dict()
            for part in self._keep
        ]

    def set_inner(self, states: list[Any]) -> None:
        """Take this rank's share of what the loop of another worker keeps."""
        for part, state in zip(self._keep, states, strict=True):
            if isinstance(part, torch.optim.Optimizer):
                set_optimizer_state_dict(self.wrapped, part, state, options=WHOLE)
            else:
                part.load_state_dict(state)


def _follow(
    keep: Sequence[Stateful], instead: Mapping[int, torch.nn.Parameter]
) -> None:
    """Let optimizers step the shares that took the place of whole weights."""
    optimizers = [part for part in keep if isinstance(part, torch.optim.Optimizer)]
    if not optimizers:
        raise UsageError(
            "the optimizer of this program would step weights that are no more",
            because="with `inner: {fsdp: ...}` each process has new ones, a share each",
            hint="write `join(model, params, keep=[optimizer])`",
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [instead.get(id(p), p) for p in group["params"]]


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
        if settings.inner_pipeline > 1:
            raise UsageError(
                "this program cannot be split by layers",
                because="its model is given as a whole, to `join`",
                hint="give layers to `PipelineRun`, or write `inner: {fsdp: 2}`",
            )
        self._device = next(model.parameters()).device
        local, self._ranks = meet(self._device, settings, around)
        self.rank = around.worker * self._ranks + local
        self.world = settings.workers * self._ranks
        kind = ShardedModel if settings.inner_fsdp > 1 else ReplicatedModel
        held = kind(model, keep, validate or dict)
        self.model: torch.nn.Module = held.wrapped
        self._telling = RunLog()
        self._group = GroupSession(
            held,
            settings,
            around,
            (local, self._ranks),
            validates=validate is not None,
            keeps=bool(keep),
        )

    @property
    def round(self) -> int:
        """How many rounds are closed."""
        return self._group.round

    @property
    def global_step(self) -> int:
        """How many steps the fastest worker has done."""
        return self._group.global_step

    @property
    def finished(self) -> bool:
        """Whether the last round is closed."""
        return self._group.finished

    def shard(self, dataset: Sized) -> Subset[Any]:
        """Return this rank's part: no rank of any worker has another of it."""
        return shard_of(dataset, self.rank, self.world)

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Note a step of all ranks; the first exchanges weights if it is time."""
        samples, tokens = samples * self._ranks, tokens * self._ranks
        self._group.step(samples, loss, tokens)
        if (session := self._group.session) is not None:
            figures = peak_figures(self._device)
            self._telling.step(samples, loss, tokens, busy=session.busy, **figures)

    def __enter__(self) -> GroupedRun:
        self._group.__enter__()
        own_seed(self.rank, self.global_step)
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave the other workers, and the group."""
        self._group.__exit__(*exception)
