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
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH: Final = Path("checkpoint/state.pt")


class Stateful(Protocol):
    """Anything with a state to save: a model, an optimizer, a schedule."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:  # noqa: ANN401
        """Restore the whole state."""
        ...


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
    except (OSError, RuntimeError, EOFError, LookupError, ValueError, UnpicklingError):
        return None
