# pyright: basic
# torch describes its types only in part.
"""Checkpoints of a model that is split: each peer keeps those layers that it computes.

Peers may come together again in another order, on other machines and with other cuts,
so what is kept is said by the layer. A peer can die while others write, so each keeps
its last two checkpoints: they go on from the newest of which all layers are there.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import torch
from torch import distributed

from shoal import task_client
from shoal.errors import ShoalError
from shoal.train.checkpoints import read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FOLDER: Final = Path("checkpoint")
LATEST: Final = "state.pt"
BEFORE: Final = "before.pt"


class Whole(NamedTuple):
    """A step with all layers saved, and the rank that holds each of them."""

    step: int
    ranks: tuple[int, ...]


def newest_whole(held: Sequence[Mapping[int, Sequence[int]]], layers: int) -> Whole:
    """Return the newest step with all layers held; step 0 if there is none.

    `held` says for each rank which layers it has, by step. The first rank that has a
    layer gives it.
    """
    for step in sorted({step for each in held for step in each}, reverse=True):
        ranks = [
            next((n for n, each in enumerate(held) if layer in each.get(step, ())), -1)
            for layer in range(layers)
        ]
        if -1 not in ranks:
            return Whole(step, tuple(ranks))
    return Whole(0, ())


@final
class LayerStates:
    """The layers of one peer, each with an optimizer of its own."""

    def __init__(
        self,
        layers: Mapping[int, torch.nn.Module],
        optimizer: Callable[[Any], torch.optim.Optimizer],
        folder: Path = FOLDER,
    ) -> None:
        self._layers = layers
        self._folder = folder
        self._optimizers = {
            number: optimizer(weights)
            for number, layer in layers.items()
            if (weights := list(layer.parameters()))
        }

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for each in self._optimizers.values():
            each.zero_grad()

    def step(self) -> None:
        """Step the optimizer of every layer."""
        for each in self._optimizers.values():
            each.step()

    def optimizers(self) -> dict[int, Any]:
        """Return what the optimizer of each layer keeps."""
        return {number: each.state_dict() for number, each in self._optimizers.items()}

    def set_optimizers(self, states: Mapping[int, Any]) -> None:
        """Take what optimizers of the same layers keep elsewhere."""
        for number, each in self._optimizers.items():
            each.load_state_dict(states[number])

    def save(self, step: int) -> None:
        """Write a checkpoint next to the one before it; it outlives this node."""
        self._folder.mkdir(parents=True, exist_ok=True)
        draft, latest = self._folder / "new.pt", self._folder / LATEST
        states = {number: self._state(number) for number in self._layers}
        torch.save({"step": step, "layers": states}, draft)
        if latest.exists():
            latest.replace(self._folder / BEFORE)
        draft.replace(latest)
        if os.environ.get(task_client.SOCKET_VARIABLE):
            with contextlib.suppress(ShoalError):  # The next one may get through.
                task_client.checkpoint(self._folder)

    def resume(self, rank: int, world: int, layers: int) -> int:
        """Resume from what all peers hold together; return the steps done."""
        own = self._found()
        held: list[Any] = [{step: list(states) for step, states in own.items()}]
        if world > 1:
            held = held * world
            distributed.all_gather_object(held, held[0])
        whole = newest_whole(held, layers)
        for number, source in enumerate(whole.ranks):
            state = own[whole.step][number] if source == rank else None
            shared = [state]
            if world > 1:
                distributed.broadcast_object_list(shared, src=source)
            if number in self._layers:
                self._restore(number, shared[0])
        return whole.step

    def _state(self, number: int) -> dict[str, Any]:
        optimizer = self._optimizers.get(number)
        return {
            "layer": self._layers[number].state_dict(),
            "optimizer": optimizer.state_dict() if optimizer else {},
        }

    def _restore(self, number: int, state: Any) -> None:  # noqa: ANN401
        self._layers[number].load_state_dict(state["layer"])
        if (optimizer := self._optimizers.get(number)) is not None:
            optimizer.load_state_dict(state["optimizer"])

    def _found(self) -> dict[int, dict[int, Any]]:
        """Return the layers of each checkpoint that is here and can be read."""
        found: dict[int, dict[int, Any]] = {}
        for name in (BEFORE, LATEST):
            if (saved := read(self._folder / name)) is not None:
                found[int(saved["step"])] = saved["layers"]
        return found
