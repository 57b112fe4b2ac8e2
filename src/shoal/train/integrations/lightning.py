# pyright: basic, reportMissingImports=false
# It may not be installed, and torch describes its types only in part.
"""A callback for the Trainer of Lightning.

Trainer(callbacks=[ShoalCallback()], max_steps=2_000).fit(module, loader)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.data import extract_batch_size

from shoal.train.arguments import worker_seed
from shoal.train.integrations.joined_loop import JoinedLoop

if TYPE_CHECKING:
    from shoal.train.run_log import Validate

__all__ = ["ShoalCallback", "worker_seed"]


@final
class ShoalCallback(Callback):
    """Joins a Trainer with the Trainers of the job's other tasks."""

    def __init__(self, validate: Validate | None = None) -> None:
        """Let `validate` measure the shared weights, whenever that is due."""
        self._validate = validate
        self._loop = JoinedLoop()
        self._steps = 0
        self._samples = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Join, before the first step."""
        self._steps = trainer.global_step
        most = float(trainer.estimated_stepping_batches)
        self._loop.begin(pl_module, trainer.optimizers, self._validate, most)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Note a step of the optimizer, if this batch ended one."""
        self._samples += extract_batch_size(batch)
        if trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        samples, self._samples = self._samples, 0
        if self._loop.step(samples, _loss_in(outputs)):
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the run."""
        self._loop.end()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leave the run without a result."""
        self._loop.end(type(exception), exception, exception.__traceback__)


def _loss_in(outputs: Any) -> float:  # noqa: ANN401
    """Return the loss that a training step returned, alone or in a mapping."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return 0.0 if loss is None else float(loss)
