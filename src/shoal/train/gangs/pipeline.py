# pyright: basic
# torch describes its types only in part.
"""The recipe `pipeline`: a model too large for one peer, split over several by layers.

The peers measure themselves and the links between them, and agree on who computes which
layers (`splitting`). Micro-batches flow through them by torch's own schedule. All peers
draw the same batches, so the first has the inputs and the last has the targets without
anything being sent for it. If one is lost all end, with a code by which shoal starts
the gang again; it goes on from the latest checkpoint that all of them have.

A worker of `diloco` can be such a pipeline (`inner: {pipeline: 2}`), of processes on
its machine or on several (`over: machines`). The first then holds a copy of all layers,
to exchange with other workers; what is kept of a run is kept by those, so it writes no
checkpoints.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from shoal import task_metrics
from shoal.errors import ShoalError
from shoal.interfaces import transport_variables
from shoal.train.counted_run import StepCount
from shoal.train.devices import backend_of, finish_work, free_bytes
from shoal.train.gangs import lost_peers, rendezvous
from shoal.train.gangs.group_session import GroupSession, meet
from shoal.train.gangs.layer_split import Layer, Split, StagePeer, split
from shoal.train.gangs.layer_states import LayerStates
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.run_log import OUT, RunLog, save
from shoal.train.settings import params_of, settings_of
from shoal.train.sharding import RANKS_APART
from shoal.train.task_context import TaskContext
from shoal.train.torch_weights import TorchWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.train.settings import TrainSettings

PROBE_BYTES: Final = 1 << 20
PROBE_S: Final = 0.05
STATE_COPIES: Final = 4
"""Weights, gradients and two moments of AdamW."""


def main() -> None:
    """Meet the other peers, and run the program with them."""
    around = TaskContext.of(os.environ)
    params = params_of(os.environ)
    settings = settings_of(params)
    with rendezvous.meet(around.exchange(), os.environ) as meeting:
        os.environ.update(
            MASTER_ADDR=meeting.host,
            MASTER_PORT=str(meeting.port),
            RANK=str(around.index),
            WORLD_SIZE=str(settings.workers),
            **transport_variables(meeting.own),
        )
        try:
            run_program(str(params.get("program", "pipeline_gpt")))
        except RuntimeError as error:
            if not lost_peers.is_lost_peer(error):
                raise
            lost_peers.end_to_try_again(f"a peer is lost: {error}")


@final
class PipelineRun:
    """One peer's stage of the pipeline. Alone, it is a pipeline of one."""

    def __init__(
        self,
        layers: Sequence[nn.Module],
        params: Mapping[str, Any],
        *,
        example: torch.Tensor,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        optimizer: Callable[[Any], torch.optim.Optimizer],
        micro_batches: int,
    ) -> None:
        """Split `layers`; `example` is one micro-batch, by which they are measured.

        `optimizer` is called for each layer, with its weights.
        """
        self._settings: TrainSettings = settings_of(params)
        self._device = example.device
        self._micro_batches = micro_batches
        self._loss = loss
        self._telling = RunLog()
        self._session: GroupSession | None = None
        self._count = StepCount(self._settings)
        around = TaskContext.of(os.environ)
        if around.recipe == "diloco":
            self._rank, self.world = meet(self._device, self._settings, around)
            self.data_seed = around.worker * RANKS_APART
        else:
            self._rank = int(os.environ.get("RANK", "0"))
            self.world = int(os.environ.get("WORLD_SIZE", "1"))
            self.data_seed = 0  # All peers are one pipeline.
            if self.world > 1:
                distributed.init_process_group(backend_of(self._device))
        self.split = self._agree(layers, example)
        place = self.split.peers.index(self._rank)
        starts = (*self.split.starts, len(layers))
        self.first, self.last = place == 0, place == self.world - 1
        self._whole = layers
        own = {
            n: layers[n].to(self._device)
            for n in range(starts[place], starts[place + 1])
        }
        self._own = own
        self.stage = nn.Sequential(*own.values())
        self._states = LayerStates(own, optimizer)
        self._schedule = None if self.world == 1 else self._scheduled(place)
        if around.recipe == "diloco":
            held = LayeredModel(layers, self.split, self._states)
            self._session = GroupSession(
                held,
                self._settings,
                around,
                (self._rank, self.world),
                validates=False,
                keeps=True,
            )
            return
        done = self._states.resume(self._rank, self.world, len(layers))
        self._count.done = done
        if done and self._rank == 0:
            self._telling.tell({"event": "resumed", "step": done})

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        if self._session is not None:
            return self._session.finished
        return self._count.is_over

    @property
    def steps(self) -> int:
        """How many steps are done; with other workers, by the fastest of them."""
        return self._count.done if self._session is None else self._session.global_step

    def step(self, x: torch.Tensor, y: torch.Tensor) -> float | None:
        """Train on one batch; return the loss where it is known: on the last peer."""
        self._states.zero_grad()
        if self._schedule is None:
            value: float | None = self._step_alone(x, y)
        else:
            losses: list[torch.Tensor] = []
            if self.first:
                self._schedule.step(x)
            elif self.last:
                self._schedule.step(target=y, losses=losses)
            else:
                self._schedule.step()
            value = torch.stack(losses).mean().item() if losses else None
        self._states.step()
        ended = self._count.add()
        if self._session is not None:
            self._session.step(len(x), self._told(value), x.numel())
            return value
        if value is not None:
            fields = {"event": "loss", "step": self._count.done, "loss": value}
            self._telling.tell(fields)
            task_metrics.log({"loss": value}, step=self._count.done)
        if ended is not None and ended.saves:
            self._states.save(self._count.done)
        return value

    def _told(self, value: float | None) -> float:
        """Return the loss, which the last peer tells all."""
        told = torch.tensor(0.0 if value is None else value, dtype=torch.float64)
        if self.world > 1:
            distributed.broadcast(told, src=self.split.peers[-1])
        return told.item()

    def _step_alone(self, x: torch.Tensor, y: torch.Tensor) -> float:
        losses: list[float] = []
        parts = zip(
            x.chunk(self._micro_batches), y.chunk(self._micro_batches), strict=True
        )
        for part, wanted in parts:
            loss = self._loss(self.stage(part), wanted)
            torch.autograd.backward(loss / self._micro_batches)
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def __enter__(self) -> PipelineRun:
        if self._session is not None:
            self._session.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        """Gather the whole model on the first peer, and leave."""
        if self._session is not None:
            self._session.__exit__(*exception)
            return
        OUT.mkdir(exist_ok=True)
        if exception[0] is None:
            self._gather()
        if self.world > 1 and exception[0] is None:
            distributed.destroy_process_group()

    # Agreeing.

    def _agree(self, layers: Sequence[nn.Module], example: torch.Tensor) -> Split:
        costs = measure_layers(layers, example)
        share = free_bytes(self._device)
        me = StagePeer(flops_per_s=measure_speed(self._device), memory_bytes=share)
        if self.world == 1:
            return split(costs, [me], [[1.0]])
        peers: list[Any] = [None] * self.world
        distributed.all_gather_object(peers, me)
        links = self._measure_links()
        # All peers must come to the same split, so that of rank 0 counts.
        found: list[Any] = [None]
        if self._rank == 0:
            found = [split(costs, peers, links)]
            fields = {"event": "split", "peers": list(found[0].peers)}
            self._telling.tell({**fields, "starts": list(found[0].starts)})
        distributed.broadcast_object_list(found, src=0)
        chosen: Split = found[0]
        return chosen

    def _measure_links(self) -> list[list[float]]:
        """Measure the bandwidth between all pairs of peers, in bytes per second."""
        size = range(self.world)
        rates = [[float("inf")] * self.world for _ in size]
        data = torch.zeros(PROBE_BYTES, dtype=torch.uint8)
        for one in size:
            for other in size:
                if one == other:
                    continue
                distributed.barrier()
                began = time.monotonic()
                if self._rank == one:
                    distributed.send(data, other)
                    distributed.recv(torch.zeros(1), other)
                    rates[one][other] = PROBE_BYTES / (time.monotonic() - began)
                elif self._rank == other:
                    distributed.recv(data, one)
                    distributed.send(torch.zeros(1), one)
        all_rates: list[Any] = [None] * self.world
        distributed.all_gather_object(all_rates, rates[self._rank])
        return all_rates

    def _scheduled(self, place: int) -> Schedule1F1B:
        stage = PipelineStage(self.stage, place, self.world, self._device)
        order = [self.split.peers.index(rank) for rank in range(self.world)]
        if order != list(range(self.world)):
            # torch takes the rank in its group for the place in the pipeline.
            group: Any = distributed.new_group(list(self.split.peers), sort_ranks=False)
            stage = PipelineStage(
                self.stage, place, self.world, self._device, group=group
            )
        return Schedule1F1B(stage, self._micro_batches, loss_fn=self._loss)

    # The end.

    def _gather(self) -> None:
        states = {number: self._whole[number].state_dict() for number in self._own}
        found: list[Any] = [None] * self.world
        if self.world > 1:
            distributed.all_gather_object(found, states)
        else:
            found = [states]
        if self._rank == 0:
            for part in found:
                for number, state in part.items():
                    self._whole[number].load_state_dict(state)
            save(nn.Sequential(*self._whole), OUT)


@final
class LayeredModel:
    """A model whose ranks have some layers each; the first has a copy of all."""

    def __init__(
        self, layers: Sequence[nn.Module], found: Split, states: LayerStates
    ) -> None:
        self.weights = TorchWeights.of(nn.Sequential(*layers))
        ends = (*found.starts[1:], len(layers))
        self._owners = [
            peer
            for peer, start, end in zip(found.peers, found.starts, ends, strict=True)
            for _ in range(start, end)
        ]
        self._layers = layers
        self._states = states

    def gather(self) -> None:
        """Bring all layers to the first rank."""
        for layer, owner in zip(self._layers, self._owners, strict=True):
            _copied(layer, owner, 0)

    def scatter(self) -> None:
        """Give all layers to the stages that compute them."""
        for layer, owner in zip(self._layers, self._owners, strict=True):
            _copied(layer, 0, owner)

    def validate(self) -> Mapping[str, float]:
        """No rank can compute all layers: there is nothing to say."""
        return {}

    def inner(self) -> dict[int, Any]:
        """Return what the optimizers of all layers keep."""
        own = self._states.optimizers()
        if max(self._owners) == 0:
            return own
        found: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(found, own)
        return {number: state for each in found for number, state in each.items()}

    def set_inner(self, states: dict[int, Any]) -> None:
        """Take what the optimizers of another pipeline keep, of one's own layers."""
        self._states.set_optimizers(states)


def _copied(layer: nn.Module, source: int, target: int) -> None:
    """Give one rank the weights of a layer as another has them."""
    rank = distributed.get_rank() if source != target else source
    if source == target or rank not in (source, target):
        return
    for tensor in layer.state_dict().values():
        there = tensor.detach().cpu().contiguous()
        if rank == source:
            distributed.send(there, target)
        else:
            distributed.recv(there, source)
            tensor.copy_(there)


def measure_layers(layers: Sequence[nn.Module], example: torch.Tensor) -> list[Layer]:
    """Run one micro-batch through all layers; return each layer's costs."""
    measured: list[Layer] = []
    x = example
    with torch.no_grad():
        for layer in layers:
            layer.to(x.device)
            layer(x)  # Once to warm up.
            finish_work(x.device)
            began = time.perf_counter()
            x = layer(x)
            finish_work(x.device)
            spent_s = time.perf_counter() - began
            layer.cpu()  # There may not be room for all of them at once.
            weights = sum(each.numel() * 4 for each in layer.parameters())
            held = x.numel() * x.element_size()
            memory = STATE_COPIES * weights + 2 * held
            # Measured time stands for work: all peers compute alike, but for speed.
            measured.append(Layer(spent_s, memory, held))
    own_speed = measure_speed(example.device)
    return [
        Layer(each.flops * own_speed, each.memory_bytes, each.output_bytes)
        for each in measured
    ]


def measure_speed(device: torch.device) -> float:
    """Return this process's floating-point operations per second."""
    one = torch.ones(128, 128, device=device)
    count = 0
    began = time.perf_counter()
    while time.perf_counter() - began < PROBE_S:
        torch.matmul(one, one)
        finish_work(device)
        count += 1
    return count * 2 * 128**3 / (time.perf_counter() - began)


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
