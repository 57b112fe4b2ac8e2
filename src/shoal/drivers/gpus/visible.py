"""Which GPUs the environment of a process leaves to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

CUDA: Final = "CUDA_VISIBLE_DEVICES"
SLURM: Final = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


def visible_gpus(uuids: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that a process with this environment may use, by index.

    `uuids` has the UUID of each index. CUDA takes a list of indices and beginnings of
    UUIDs, and ignores all from the first that it does not know: an empty list and `-1`
    hide all. Slurm's list counts the GPUs of the whole machine. It sets CUDA's as well,
    unless a site turned that off; where it hides the others, its numbers may mean
    nothing here.
    """
    if CUDA in env:
        return _of_cuda(uuids, env[CUDA])
    for name in SLURM:
        listed = [item.strip() for item in env.get(name, "").split(",")]
        if env.get(name) and all(item in uuids for item in listed):
            return tuple(index for index in uuids if index in listed)
    return tuple(uuids)


def _of_cuda(uuids: Mapping[str, str], text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for item in (part.strip() for part in text.split(",")):
        named = [i for i, uuid in uuids.items() if item and uuid.startswith(item)]
        index = item if item in uuids else named[0] if len(named) == 1 else None
        if index is None or index in found:
            break
        found[index] = None
    return tuple(index for index in uuids if index in found)
