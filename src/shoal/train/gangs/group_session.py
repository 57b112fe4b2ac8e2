# pyright: basic
# torch describes its types only in part.
"""A group of ranks that is one DiLoCo worker to the others.

The session with the other workers is in the first rank. What it needs of the group it
orders between two steps: to bring the weights together, to hand out new ones, to
measure them, to give or take what the loop keeps. Each order is performed by all ranks
at once, since none may have all of the model. The others take orders until they are
told to go on, so all ranks are at the same step whenever one of them computes.
"""

from __future__ import annotations

import os
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import torch
from torch import distributed

from shoal.errors import ProtocolError
from shoal.interfaces import transport_variables
from shoal.train import checkpoints
from shoal.train.devices import backend_of
from shoal.train.diloco.session import DilocoSession
from shoal.train.gangs import local_ranks, rendezvous

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.train.diloco.compression import Array
    from shoal.train.settings import TrainSettings
    from shoal.train.task_context import TaskContext
    from shoal.train.torch_weights import TorchWeights

PATIENT: Final = timedelta(days=1)
"""Ranks wait while the first waits for other workers; a dead one is noticed at once."""


class GroupOrder(IntEnum):
    """What the first rank tells all."""

    GO_ON = 0
    GATHER = 1
    SCATTER = 2
    VALIDATE = 3
    SAVE = 4
    LOAD = 5


class GroupModel(Protocol):
    """A model as the ranks of a group hold it; all call a method at the same time."""

    weights: TorchWeights  # all of them; those of the first rank count

    def gather(self) -> None:
        """Bring what all ranks have into `weights` of the first."""
        ...

    def scatter(self) -> None:
        """Give all ranks their parts of `weights` of the first."""
        ...

    def validate(self) -> Mapping[str, float]:
        """Measure the model; figures of the first rank count."""
        ...

    def inner(self) -> Any:  # noqa: ANN401
        """Return what the loop keeps; the first rank's answer is all of it."""
        ...

    def set_inner(self, states: Any) -> None:  # noqa: ANN401
        """Take what the loop of another worker keeps."""
        ...


def meet(
    device: torch.device, settings: TrainSettings, around: TaskContext
) -> tuple[int, int]:
    """Meet the ranks of this worker; return this one's number and how many they are."""
    if around.spans:
        rank, ranks = around.index, settings.inner_ranks
        with rendezvous.meet(around.exchange(), os.environ) as meeting:
            os.environ.update(transport_variables(meeting.own))
            _begin(device, f"tcp://{meeting.host}:{meeting.port}", rank, ranks)
        return rank, ranks
    return meet_here(device)


def meet_here(device: torch.device) -> tuple[int, int]:
    """Meet the other ranks of this task; return the same of these."""
    if not local_ranks.is_rank(os.environ):
        return 0, 1
    rank, ranks = (int(os.environ[n]) for n in (local_ranks.RANK, local_ranks.WORLD))
    _begin(device, f"file://{os.environ[local_ranks.MEETING]}", rank, ranks)
    return rank, ranks


def _begin(device: torch.device, place: str, rank: int, ranks: int) -> None:
    distributed.init_process_group(
        backend_of(device),
        init_method=place,
        rank=rank,
        world_size=ranks,
        timeout=PATIENT,
    )


@final
class GroupSession:
    """One rank's side of the session that all ranks of a worker have together."""

    def __init__(
        self,
        model: GroupModel,
        settings: TrainSettings,
        around: TaskContext,
        ranks: tuple[int, int],
        *,
        validates: bool,
        keeps: bool,
    ) -> None:
        """Join as rank `ranks[0]` of `ranks[1]`."""
        self._model = model
        self._first, self._alone = ranks[0] == 0, ranks[1] == 1
        self.layout = model.weights.layout
        self._gathered = self._changed = True  # The first rank's weights are for all.
        self.round = self.global_step = 0
        self.finished = False
        self.session: DilocoSession | None = None
        if self._first:
            self.session = DilocoSession(
                around.exchange(),
                settings,
                life=around.life,
                aggregator=around.aggregator,
                weights=self,
                validate=self._measure if validates else None,
                inner=self if keeps else None,
            )

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Note a step of all ranks; exchange weights if it is time."""
        if self.session is not None:
            self._gathered = False
            self.session.step(samples, loss, tokens)
        self._go_on()

    def __enter__(self) -> GroupSession:
        if self.session is not None:
            self.session.__enter__()
        self._go_on()
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave the other workers, and the group."""
        if self.session is not None:
            self.session.__exit__(*exception)
        if not self._alone:
            distributed.destroy_process_group()

    # What the session of the first rank asks for.

    def read(self, part: slice) -> Array:
        """Return a copy of a range of all weights."""
        self._gather()
        return self._model.weights.read(part)

    def write(self, part: slice, values: Array) -> None:
        """Set a range of all weights; ranks have it before they go on."""
        self._gather()
        self._model.weights.write(part, values)
        self._changed = True

    def save(self, path: Path) -> None:
        """Write what the loops keep to a file."""
        self._order(GroupOrder.SAVE)
        torch.save(self._model.inner(), path)

    def load(self, path: Path) -> None:
        """Take what the loop of another worker keeps; `ProtocolError` if it is none."""
        try:
            states = torch.load(path, weights_only=True, map_location="cpu")
        except checkpoints.UNREADABLE as error:
            raise _does_not_fit(error) from error
        self._order(GroupOrder.LOAD)
        self._take(states)

    def _measure(self) -> Mapping[str, float]:
        self._scatter()
        self._order(GroupOrder.VALIDATE)
        return self._model.validate()

    def _gather(self) -> None:
        if not self._gathered:
            self._order(GroupOrder.GATHER)
            self._model.gather()
            self._gathered = True

    def _scatter(self) -> None:
        if self._changed:
            self._order(GroupOrder.SCATTER)
            self._model.scatter()
            self._changed = False

    # Orders.

    def _go_on(self) -> None:
        """Let all ranks compute the next step, once they have the same weights."""
        if self.session is None:
            self._serve()
            return
        self._scatter()
        self.finished, self.round = self.session.finished, self.session.round
        self.global_step = self.session.global_step
        self._order(GroupOrder.GO_ON)

    def _order(self, order: GroupOrder) -> None:
        if not self._alone:
            distributed.broadcast(
                torch.tensor([order, self.finished, self.round, self.global_step]),
                src=0,
            )

    def _serve(self) -> None:
        """Perform what the first rank orders, until it says to go on."""
        told = torch.zeros(4, dtype=torch.int64)
        while True:
            distributed.broadcast(told, src=0)
            order, finished, self.round, self.global_step = told.tolist()
            self.finished = bool(finished)
            match GroupOrder(order):
                case GroupOrder.GO_ON:
                    return
                case GroupOrder.GATHER:
                    self._model.gather()
                case GroupOrder.SCATTER:
                    self._model.scatter()
                case GroupOrder.VALIDATE:
                    self._model.validate()
                case GroupOrder.SAVE:
                    self._model.inner()
                case GroupOrder.LOAD:
                    self._take(None)

    def _take(self, states: Any) -> None:  # noqa: ANN401
        told = [states]
        if not self._alone:
            distributed.broadcast_object_list(told, src=0)
        try:
            self._model.set_inner(told[0])
        except checkpoints.UNREADABLE as error:
            if self._first:  # The others go on as well, each with what it had.
                raise _does_not_fit(error) from error


def _does_not_fit(error: BaseException) -> ProtocolError:
    return ProtocolError("what another worker keeps does not fit", because=str(error))
