"""The parameters of all recipes, checked before anything starts.

A job gives them as `params` of its spec, and a task gets them as JSON in SHOAL_PARAMS.
Names that are not known here belong to the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from shoal import validation
from shoal.errors import UsageError
from shoal.train.diloco.compression import VALUE_BYTES
from shoal.train.diloco.outer import Outer
from shoal.train.diloco.rules import RoundRules

if TYPE_CHECKING:
    from collections.abc import Mapping

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Ranks = Annotated[int, Meta(ge=1, le=64)]


OVER: Final = "inner.over"
INNER: Final = {
    f"inner_{kind}": f"inner.{kind}" for kind in ("ddp", "fsdp", "pipeline", "over")
}
"""How params that stand in one mapping are called: `inner: {ddp: 2}` is `inner.ddp`."""


class TrainSettings(msgspec.Struct, frozen=True, kw_only=True, rename=INNER):
    """The parameters of a training job."""

    rounds: Positive = 40
    inner_steps: Positive = 50
    outer: Literal["nesterov", "sgd"] = "nesterov"
    outer_lr: Annotated[float, Meta(gt=0)] = 0.7
    outer_momentum: Annotated[float, Meta(ge=0, lt=1)] | None = None  # by the round
    compress: Literal["float32", "float16", "int8"] = "float16"
    fragments: Annotated[int, Meta(ge=1, le=256)] = 1
    workers: Positive = 1
    quorum: Positive = 1
    balance: bool = True
    inner_ddp: Ranks = 1  # processes of one worker, each with the whole model
    inner_fsdp: Ranks = 1  # the same, each with a share of every weight
    inner_pipeline: Ranks = 1  # the same, each with some of the layers
    inner_over: Literal["processes", "machines"] = "processes"  # where these are
    average: Literal["mean", "trimmed", "median"] = "mean"
    reduce: Literal["auto", "central", "shared"] = "auto"  # by size
    gather: Seconds = 30.0
    silence: Seconds = 20.0
    round_timeout: Seconds = 600.0
    validate_every: Positive = 1
    checkpoint_every: Positive = 10  # rounds
    trials: Positive = 1  # of a sweep
    first_rung: Positive = 1  # rounds, before the worse trials are stopped
    eta: Annotated[int, Meta(ge=2)] = 3  # one trial in this many goes on
    metric: str = "loss"  # by which trials are compared; the smaller the better
    model: str = ""  # a file of weights to begin with, or to measure
    resume: str = ""  # a file of all that an earlier job left, to go on from

    @property
    def inner_ranks(self) -> int:
        """How many processes a worker of `diloco` consists of."""
        return max(self.inner_ddp, self.inner_fsdp, self.inner_pipeline)

    def rules(self) -> RoundRules:
        """Return the rules for the aggregator's machine."""
        return RoundRules(
            rounds=self.rounds,
            inner_steps=self.inner_steps,
            fragments=self.fragments,
            quorum=min(self.quorum, self.workers),
            workers=self.workers,
            gather_s=self.gather,
            silence_s=self.silence,
            timeout_s=self.round_timeout,
            checkpoint_every=self.checkpoint_every,
            balance=self.balance,
            validate_every=self.validate_every,
            reduce=self.reduce,
            value_bytes=VALUE_BYTES[self.compress],
        )

    def outer_rule(self) -> Outer:
        """Return the rule of the outer step."""
        return Outer(
            kind=self.outer,
            rate=self.outer_lr,
            momentum=self.outer_momentum,
            rounds=self.rounds,
        )


def settings_of(params: Mapping[str, Any]) -> TrainSettings:
    """Return the settings in params; raise `UsageError` if one makes no sense."""
    known = TrainSettings.__struct_encode_fields__
    own = {name: value for name, value in params.items() if name in known}
    try:
        return msgspec.convert(own, TrainSettings, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            "the params of this job are wrong",
            because=validation.sentence(error),
            hint="docs/guides/training.md lists them",
        ) from error


def params_of(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the params that this task was given."""
    text = environment.get("SHOAL_PARAMS", "{}")
    return msgspec.json.decode(text, type=dict[str, Any])
