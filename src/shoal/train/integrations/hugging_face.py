# pyright: basic, reportMissingImports=false
# It may not be installed, and torch describes its types only in part.
"""A callback for the Trainer of Hugging Face's transformers.

trainer.add_callback(ShoalTrainerCallback(trainer))
trainer.train()
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from shoal.train.arguments import worker_seed
from shoal.train.integrations.joined_loop import JoinedLoop

__all__ = ["ShoalTrainerCallback", "worker_seed"]


@final
class ShoalTrainerCallback(TrainerCallback):
    """Joins a Trainer with the Trainers of the job's other tasks."""

    def __init__(self, trainer: Trainer | None = None) -> None:
        """Validate by `trainer.evaluate()`, if there is a trainer with data for it."""
        self._trainer = trainer
        self._loop = JoinedLoop()
        self._loss = 0.0
        self._hook: Any = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **parts: Any,  # noqa: ANN401
    ) -> None:
        """Join, before the first step."""
        trainer = self._trainer
        measured = trainer is not None and trainer.eval_dataset is not None
        keep = [parts[name] for name in ("optimizer", "lr_scheduler") if parts[name]]
        self._loop.begin(
            parts["model"], keep, self._measure if measured else None, state.max_steps
        )
        self._hook = parts["model"].register_forward_hook(self._note_loss)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **parts: Any,  # noqa: ANN401
    ) -> TrainerControl:
        """Note a step of the optimizer; stop when the run is over."""
        samples = args.train_batch_size * args.gradient_accumulation_steps
        if self._loop.step(samples, float(self._loss)):
            control.should_training_stop = True
        return control

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **parts: Any,  # noqa: ANN401
    ) -> None:
        """Leave the run."""
        if self._hook is not None:
            self._hook.remove()
        self._loop.end()

    def _note_loss(self, model: torch.nn.Module, _inputs: object, output: Any) -> None:  # noqa: ANN401
        """Remember the loss of a batch; it is read once in a step of the optimizer."""
        loss = output.get("loss") if isinstance(output, dict) else None
        if model.training and loss is not None:
            self._loss = loss.detach()

    def _measure(self) -> dict[str, float]:
        assert self._trainer is not None
        figures = self._trainer.evaluate()
        return {
            name.removeprefix("eval_"): float(value)
            for name, value in figures.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
