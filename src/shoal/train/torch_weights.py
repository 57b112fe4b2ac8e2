# pyright: basic
# torch describes its types only in part.
"""What a torch model shares with other workers, and how it gets in and out.

Trained weights are the parameters that require a gradient, each once though several
layers may use it. Buffers are those of floating point that belong to the state of the
model, such as the statistics of a batch norm; counters stay as they are. Frozen
weights do not travel: every worker has the same, which a check sum confirms.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from shoal.train.tensors import Layout
from shoal.train.weights import Ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.train.diloco.compression import Array


def trained_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters that are trained, each under its first name."""
    return {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}


def buffer_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers of floating point that are part of the model's state."""
    saved = model.state_dict(keep_vars=True)
    return {
        name: buffer
        for name, buffer in model.named_buffers()
        if buffer.is_floating_point() and name in saved
    }


def frozen_check(model: torch.nn.Module) -> int:
    """Return the CRC-32 of the parameters that are not trained; 0 if all are."""
    check = 0
    for name, tensor in sorted(model.named_parameters()):
        if not tensor.requires_grad:
            values = tensor.detach().float().cpu().contiguous().numpy()
            check = zlib.crc32(values.data, zlib.crc32(name.encode(), check))
    return check


@final
class TorchWeights:
    """Tensors of a model on any device, of any precision."""

    def __init__(
        self,
        trained: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        frozen: int = 0,
    ) -> None:
        self.layout = Layout(
            {name: tuple(trained[name].shape) for name in sorted(trained)},
            {name: tuple(buffers[name].shape) for name in sorted(buffers)},
            frozen,
        )
        self._tensors = {**trained, **buffers}
        self._ranges = Ranges(self.layout)
        self._on_gpu = any(t.is_cuda for t in self._tensors.values())

    @classmethod
    def of(cls, model: torch.nn.Module) -> TorchWeights:
        """Return the weights of a whole model."""
        return cls(trained_tensors(model), buffer_tensors(model), frozen_check(model))

    def read(self, part: slice) -> Array:
        """Return a copy of a range; from a GPU all of it is under way at once."""
        size = part.stop - part.start
        values = torch.empty(size, dtype=torch.float32, pin_memory=self._on_gpu)
        for name, own, there in self._ranges.within(part):
            source = self._tensors[name].reshape(-1)[own]
            values[there].copy_(source, non_blocking=self._on_gpu)
        if self._on_gpu:
            torch.cuda.synchronize()
        return values.numpy()

    def write(self, part: slice, values: Array) -> None:
        """Set a range."""
        source = torch.from_numpy(np.ascontiguousarray(values))
        if self._on_gpu:
            source = source.pin_memory()
        for name, own, there in self._ranges.within(part):
            tensor = self._tensors[name]
            if tensor.is_contiguous():
                tensor.view(-1)[own].copy_(source[there], non_blocking=self._on_gpu)
                continue
            flat = tensor.reshape(-1).clone()
            flat[own].copy_(source[there])
            tensor.copy_(flat.view(tensor.shape))
        if self._on_gpu:
            torch.cuda.synchronize()
