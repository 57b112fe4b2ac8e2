# pyright: basic
# torch describes its types only in part.
"""Join a training loop in torch with those of other workers: one call, any recipe.

A program does the same whether it runs alone or with others. How it runs is said by
the job that it is a task of:

    with join(model, params, validate=measure) as run:
        while not run.finished:
            loss = run.model(*next_batch())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(samples=32, loss=loss.item())
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, final

import torch
from safetensors.numpy import save_file

from shoal import reporting
from shoal.train.session import Session
from shoal.train.settings import Settings, settings_of
from shoal.train.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.train.compression import Array

    Validate = Callable[[], Mapping[str, float]]

LOG_EVERY_S: Final = 1.0


class Run(Protocol):
    """A loop's place among the others."""

    model: torch.nn.Module  # to compute with; it may be wrapped

    @property
    def round(self) -> int:
        """How many rounds are done, also by those who were here before."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing is left to compute."""
        ...

    def step(self, samples: int, loss: float) -> None:
        """Note an inner step; exchange whatever is to be exchanged."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def join(
    model: torch.nn.Module,
    params: Mapping[str, Any],
    *,
    validate: Validate | None = None,
) -> Run:
    """Return the run that this process is a part of, by its environment."""
    around = Surroundings.of(os.environ)
    settings = settings_of(params)
    if around.recipe == "diloco":
        return DilocoRun(model, settings, around, validate)
    return Alone(model, settings, validate)


def named_arrays(model: torch.nn.Module) -> dict[str, Array]:
    """Return the weights of a model, without copies where that is possible."""
    return {
        name: tensor.detach().cpu().float().numpy()
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    }


def set_arrays(model: torch.nn.Module, arrays: Mapping[str, Array]) -> None:
    """Set the weights of a model."""
    own = model.state_dict()
    with torch.no_grad():
        for name, array in arrays.items():
            own[name].copy_(torch.from_numpy(array.copy()))


@final
class DilocoRun:
    """A worker of a DiLoCo job."""

    def __init__(
        self,
        model: torch.nn.Module,
        settings: Settings,
        around: Surroundings,
        validate: Validate | None,
    ) -> None:
        self.model = model
        self._telling = Telling()
        self._session = Session(
            around.exchange(),
            settings,
            life=around.life,
            aggregator=around.aggregator,
            read=lambda: named_arrays(model),
            write=lambda arrays: set_arrays(model, arrays),
            validate=validate,
        )

    @property
    def round(self) -> int:
        """How many rounds are closed."""
        return self._session.round

    @property
    def finished(self) -> bool:
        """Whether the last round is closed."""
        return self._session.finished

    def step(self, samples: int, loss: float) -> None:
        """Note an inner step; exchange weights if it is time."""
        self._session.step(samples, loss)
        session = self._session
        busy = session.computed_s / max(1e-9, session.computed_s + session.waited_s)
        self._telling.step(samples, loss, busy=busy)

    def __enter__(self) -> DilocoRun:
        self._session.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._session.__exit__(*exception)


@final
class Alone:
    """One process, and nobody to exchange with."""

    def __init__(
        self, model: torch.nn.Module, settings: Settings, validate: Validate | None
    ) -> None:
        self.model = model
        self._settings = settings
        self._validate = validate
        self._telling = Telling()
        self._done = 0

    @property
    def round(self) -> int:
        """How many times `inner_steps` are done."""
        return self._done // self._settings.inner_steps

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self._done >= self._settings.rounds * self._settings.inner_steps

    def step(self, samples: int, loss: float) -> None:
        """Note a step; measure now and then."""
        self._done += 1
        self._telling.step(samples, loss)
        rounds, rest = divmod(self._done, self._settings.inner_steps)
        due = rounds % self._settings.validate_every == 0 or self.finished
        if not rest and due and self._validate is not None:
            figures = {f"validation_{k}": v for k, v in self._validate().items()}
            self._telling.tell({"event": "validation", "round": rounds, **figures})

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave the weights where the outputs of a job are taken from."""
        if exception[0] is None:
            save(self.model, Path("out"))


def save(model: torch.nn.Module, folder: Path) -> None:
    """Write the weights of a model to `folder`/model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: array.copy() for name, array in named_arrays(model).items()}
    save_file(arrays, folder / "model.safetensors")


@final
class Telling:
    """Prints a line of JSON and tells the worker, about once a second."""

    def __init__(self) -> None:
        warnings.filterwarnings("ignore", message="shoal.log has no effect")
        self._began = self._last = time.monotonic()
        self._steps = self._samples = self._samples_last = 0

    def step(self, samples: int, loss: float, **more: float) -> None:
        """Note a step."""
        self._steps += 1
        self._samples += samples
        now = time.monotonic()
        if now - self._last < LOG_EVERY_S:
            return
        rate = (self._samples - self._samples_last) / (now - self._last)
        figures = {"loss": loss, "samples_per_s": rate, **more}
        self._last, self._samples_last = now, self._samples
        self.tell({"event": "step", "step": self._steps, **figures})
        reporting.log(figures, step=self._steps)

    def tell(self, fields: Mapping[str, object]) -> None:
        """Print fields as one line."""
        print(json.dumps(fields), file=sys.stdout, flush=True)
