# pyright: basic
# torch describes its types only in part.
"""Checkpoints of a torch loop: written aside, kept by the worker, found again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import torch

from shoal import task_client
from shoal.errors import ProtocolError, ShoalError

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH: Final = Path("checkpoint/state.pt")

UNREADABLE: Final = (
    OSError,
    RuntimeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    UnpicklingError,
)
"""What reading a file raises that is damaged, or somebody else's."""


class Stateful(Protocol):
    """Anything with a state to save: a model, an optimizer, a schedule."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:  # noqa: ANN401
        """Restore the whole state."""
        ...


@final
class InnerParts:
    """What a DiLoCo worker's loop keeps besides its weights, as a file for others.

    Optimizers and schedules count steps, so who takes them over goes on where the
    other was: at its learning rate, and with its moments.
    """

    def __init__(self, parts: Sequence[Stateful]) -> None:
        self._parts = parts

    def save(self, path: Path) -> None:
        """Write all parts to a file."""
        torch.save([part.state_dict() for part in self._parts], path)

    def load(self, path: Path) -> None:
        """Take all parts from a file; raise `ProtocolError` if that cannot be."""
        try:
            saved = torch.load(path, weights_only=True, map_location="cpu")
            for part, state in zip(self._parts, saved, strict=True):
                part.load_state_dict(state)
        except UNREADABLE as error:
            raise ProtocolError(
                "what another worker keeps does not fit", because=str(error)
            ) from error


@final
class Checkpoints:
    """Saves and restores a training loop's parts and its step count."""

    def __init__(self, parts: Sequence[Stateful], path: Path = PATH) -> None:
        self._parts = parts
        self._path = path

    def state(self, step: int) -> dict[str, Any]:
        """Return all parts as they are now."""
        return {"step": step, "parts": [part.state_dict() for part in self._parts]}

    def restore(self, state: dict[str, Any]) -> int:
        """Set all parts; return how many steps are done."""
        for part, saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        return int(state["step"])

    def save(self, step: int, *, elsewhere: bool) -> None:
        """Write a checkpoint; with `elsewhere` it outlives this node as well."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        torch.save(self.state(step), draft)
        draft.replace(self._path)
        if elsewhere and os.environ.get(task_client.SOCKET_VARIABLE):
            with contextlib.suppress(ShoalError):  # The next one may get through.
                task_client.checkpoint(self._path.parent)

    def find(self) -> dict[str, Any] | None:
        """Return the latest checkpoint that is here, if it can be read."""
        return read(self._path)


def read(path: Path) -> dict[str, Any] | None:
    """Return what was saved, if it is whole: a power cut may leave anything."""
    try:
        return dict(torch.load(path, weights_only=True, map_location="cpu"))
    except UNREADABLE:
        return None
