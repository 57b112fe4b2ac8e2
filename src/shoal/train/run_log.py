# pyright: basic
# torch describes its types only in part.
"""What a loop tells of itself, and what it leaves behind."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from safetensors.numpy import save_file

from shoal import task_metrics

if TYPE_CHECKING:
    import torch

    from shoal.train.diloco.compression import Array

Validate = Callable[[], Mapping[str, float]]
LOG_EVERY_S: Final = 1.0
OUT: Final = Path("out")


def named_arrays(model: torch.nn.Module) -> dict[str, Array]:
    """Return all weights of a model, without copies where that is possible."""
    return {
        name: tensor.detach().cpu().float().numpy()
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    }


def save(model: torch.nn.Module, folder: Path = OUT) -> None:
    """Write the weights of a model to `folder`/model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: array.copy() for name, array in named_arrays(model).items()}
    save_file(arrays, folder / "model.safetensors")


@final
class RunLog:
    """Prints a JSON line and reports to the worker, about once a second."""

    def __init__(self) -> None:
        warnings.filterwarnings("ignore", message="shoal.log has no effect")
        self._last = time.monotonic()
        self._steps = self._samples = self._tokens = 0

    def step(self, samples: int, loss: float, tokens: int = 0, **more: float) -> None:
        """Count a step."""
        self._steps += 1
        self._samples += samples
        self._tokens += tokens
        now = time.monotonic()
        if now - self._last < LOG_EVERY_S:
            return
        took_s = now - self._last
        figures = {"loss": loss, "samples_per_s": self._samples / took_s, **more}
        if self._tokens:
            figures["tokens_per_s"] = self._tokens / took_s
        self._last, self._samples, self._tokens = now, 0, 0
        self.tell({"event": "step", "step": self._steps, **figures})
        task_metrics.log(figures, step=self._steps)

    def tell(self, fields: Mapping[str, object]) -> None:
        """Print fields as one line, and report the metrics among them."""
        line = json.dumps(task_metrics.as_json(dict(fields)), allow_nan=False)
        print(line, flush=True)
        measured = {
            name: value
            for name, value in fields.items()
            if name.startswith("validation") and isinstance(value, float)
        }
        if measured:
            task_metrics.log(measured)
