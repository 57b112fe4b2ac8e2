# pyright: basic
# torch describes its types only in part.
"""Join a torch training loop with other workers': one call, any recipe.

A program does the same whether it runs alone or with others. How it runs is said by
the job that it is a task of:

    with join(model, params, validate=measure, keep=[optimizer]) as run:
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
from typing import TYPE_CHECKING, Any, Protocol, Self, final

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file

from shoal.errors import UsageError
from shoal.train.checkpoints import Checkpoints, InnerParts, Stateful
from shoal.train.counted_run import CountedRun
from shoal.train.devices import peak_figures
from shoal.train.diloco.session import DilocoSession
from shoal.train.gangs import local_ranks
from shoal.train.run_log import OUT, RunLog, Validate, named_arrays, save
from shoal.train.settings import TrainSettings, settings_of
from shoal.train.sharding import own_seed, shard_of
from shoal.train.single.halving import Halving, TrialReport
from shoal.train.single.sweep import Trial
from shoal.train.task_context import TaskContext
from shoal.train.torch_weights import TorchWeights, trained_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Sized

    from torch.utils.data import Subset

    from shoal.train.diloco.compression import Array


class TrainingRun(Protocol):
    """A training loop's handle on the run it is a part of."""

    model: torch.nn.Module  # to compute with; it may be wrapped
    rank: int  # of this process among those that train, from 0
    world: int  # how many these are at the most

    @property
    def round(self) -> int:
        """How many rounds are done, including those before this worker joined."""
        ...

    @property
    def global_step(self) -> int:
        """How many steps the run has done, including those before this worker."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing is left to compute."""
        ...

    def shard(self, dataset: Sized) -> Subset[Any]:
        """Return this process's part of a dataset: others have the rest."""
        ...

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Note an inner step; exchange weights or gradients if it is time.

        `tokens` are told as a rate, and change nothing.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def join(
    model: torch.nn.Module,
    params: Mapping[str, Any],
    *,
    validate: Validate | None = None,
    keep: Sequence[Stateful] = (),
) -> TrainingRun:
    """Join the run that this process is a part of, by its environment.

    `validate` measures the model as it is; `keep` is what belongs into a checkpoint
    besides the model, such as the optimizer: who joins late, or resumes, gets it too.

    From here on each process draws its own random numbers, so that the same program
    with the same seed does not shuffle its data alike everywhere.
    """
    around = TaskContext.of(os.environ)
    settings = settings_of(params)
    if settings.model:
        load_weights(model, settings.model)
    if around.recipe == "diloco" and settings.inner_ranks > 1:
        from shoal.train.gangs.inner_group import GroupedRun  # noqa: PLC0415 - Loads for a second.

        return GroupedRun(model, settings, around, keep, validate)
    if around.recipe == "diloco":
        return DilocoRun(model, settings, around, keep, validate)
    if around.recipe == "ddp" or (
        around.recipe == "train" and local_ranks.is_rank(os.environ)
    ):
        from shoal.train.gangs.data_parallel import DataParallelRun  # noqa: PLC0415

        ranked = DataParallelRun(model, settings, keep, validate)
        own_seed(ranked.rank, ranked.global_step)
        return ranked
    if around.recipe == "eval":
        return MeasuredLoss(model, settings, validate)
    trial = Trial(around.exchange()) if around.recipe == "sweep" else None
    return Alone(model, settings, keep, validate, trial, params)


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
        settings: TrainSettings,
        around: TaskContext,
        keep: Sequence[Stateful],
        validate: Validate | None,
    ) -> None:
        self.model = model
        self.rank, self.world = around.index, settings.workers
        self._device = next(model.parameters()).device
        self._telling = RunLog()
        self._session = DilocoSession(
            around.exchange(),
            settings,
            life=around.life,
            aggregator=around.aggregator,
            weights=TorchWeights.of(model),
            validate=validate,
            inner=InnerParts(keep) if keep else None,
        )

    @property
    def round(self) -> int:
        """How many rounds are closed."""
        return self._session.round

    @property
    def finished(self) -> bool:
        """Whether the last round is closed."""
        return self._session.finished

    @property
    def global_step(self) -> int:
        """How many steps the fastest worker has done."""
        return self._session.global_step

    def shard(self, dataset: Sized) -> Subset[Any]:
        """Return this worker's part: the same one, regardless of other workers."""
        return shard_of(dataset, self.rank, self.world)

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Note an inner step; exchange weights if it is time."""
        self._session.step(samples, loss, tokens)
        figures = peak_figures(self._device)
        self._telling.step(samples, loss, tokens, busy=self._session.busy, **figures)

    def __enter__(self) -> DilocoRun:
        self._session.__enter__()
        own_seed(self.rank, self._session.global_step)
        return self

    def __exit__(self, *exception: object) -> None:
        self._session.__exit__(*exception)


@final
class MeasuredLoss:
    """A run that validates weights once, and trains nothing."""

    def __init__(
        self, model: torch.nn.Module, settings: TrainSettings, validate: Validate | None
    ) -> None:
        if not settings.model or validate is None:
            raise UsageError(
                "there is nothing to measure",
                because="no param `model` names a file of weights",
                hint="write `params: {model: out/model.safetensors}`",
            )
        self.model = model
        self.rank, self.world = 0, 1
        self.round = self.global_step = 0
        self.finished = True
        figures = {f"validation_{k}": v for k, v in validate().items()}
        RunLog().tell({"event": "validation", "model": settings.model, **figures})
        OUT.mkdir(exist_ok=True)
        (OUT / "eval.json").write_text(json.dumps(figures) + "\n")

    def shard(self, dataset: Sized) -> Subset[Any]:
        """Return all of it."""
        return shard_of(dataset, 0, 1)

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Never called: it is finished."""

    def __enter__(self) -> MeasuredLoss:
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave nothing to do."""


def load_weights(model: torch.nn.Module, path: str) -> None:
    """Load the weights of a model from a file of the workdir."""
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(
            f"the weights in {path} cannot be read",
            because=str(error),
            hint="it must be a safetensors file below the workdir of the job",
        ) from error
    shapes = {name: array.shape for name, array in named_arrays(model).items()}
    is_part = all(shapes.get(name) == array.shape for name, array in arrays.items())
    if not is_part or not trained_tensors(model).keys() <= arrays.keys():
        raise UsageError(
            f"the weights in {path} are not those of this model",
            because="names or shapes of the tensors differ",
            hint="use the params that it was trained with",
        )
    set_arrays(model, arrays)


@final
class Alone(CountedRun):
    """One process, and no peers to exchange with."""

    def __init__(
        self,
        model: torch.nn.Module,
        settings: TrainSettings,
        keep: Sequence[Stateful],
        validate: Validate | None,
        trial: Trial | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Report to a judge if this is a trial of a sweep."""
        super().__init__(settings)
        self.model = model
        self._settings = settings
        self._validate = validate
        self._telling = RunLog()
        self._checkpoints = Checkpoints([model, *keep])
        self._trial = trial
        self._params = dict(params or {})
        self._stopped = False
        self._rungs = Halving(settings.first_rung, settings.eta)

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or a judge has said that they are enough."""
        return self._stopped or super().finished

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Count a step; validate now and then, and ask the judge if there is one."""
        ended = self._steps.add()
        self._telling.step(samples, loss, tokens)
        if ended is None:
            return
        if ended.saves:
            self._checkpoints.save(self.global_step, elsewhere=True)
        if ended.validates and self._validate is not None:
            measured = dict(self._validate())
            figures = {f"validation_{k}": v for k, v in measured.items()}
            fields = {"event": "validation", "round": ended.number}
            self._telling.tell({**fields, **figures})
            self._ask_judge(ended.number, measured)

    def _ask_judge(self, rounds: int, measured: Mapping[str, float]) -> None:
        if self._trial is None:
            return
        figure = measured[self._settings.metric]
        report = TrialReport(
            trial="",
            rounds=rounds,
            figure=figure,
            params=self._params,
            over=self.finished,
        )
        if not self.finished and not self._rungs.is_rung(rounds):
            return
        verdict = self._trial.report(report)
        if verdict == "stop" and not self.finished:
            self._stopped = True
            self._trial.report(msgspec.structs.replace(report, over=True))

    def __enter__(self) -> Alone:
        if (state := self._checkpoints.find()) is not None:
            self._steps.done = self._checkpoints.restore(state)
            self._telling.tell({"event": "resumed", "step": self.global_step})
        return self

    def __exit__(self, *exception: object) -> None:
        """Write the weights to the job's output folder."""
        if exception[0] is None:
            save(self.model)
