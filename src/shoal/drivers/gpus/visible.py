"""Which GPUs the environment of a process leaves to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CUDA: Final = ("CUDA_VISIBLE_DEVICES",)
ROCM: Final = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
SLURM: Final = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


def visible_gpus(
    uuids: Mapping[str, str],
    env: Mapping[str, str],
    variables: Sequence[str] = CUDA,
) -> tuple[str, ...]:
    """Return the GPUs that a process with this environment may use, by index.

    `uuids` has the UUID of each index. `variables` are read by the makers' libraries,
    the first that is set. They take a list of indices and beginnings of UUIDs, and
    ignore all from the first that they do not know: an empty list and `-1` hide all.
    Slurm's list counts the GPUs of the whole machine. It sets the libraries' as well,
    unless a site turned that off; where it hides the others, its numbers may mean
    nothing here. Where the two disagree, both are right: a GPU must be in both lists.
    """
    listed = slurm_gpus(env)
    allotted = listed if listed and all(item in uuids for item in listed) else uuids
    for name in variables:
        if name in env:
            shown = _of_list(uuids, env[name])
            both = tuple(index for index in shown if index in allotted)
            # Slurm counts what it hides, so its numbers may be others than CUDA's.
            return both or shown
    return tuple(index for index in uuids if index in allotted)


def slurm_gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that Slurm lists for a step, or else for its job."""
    for name in SLURM:
        if env.get(name):
            return tuple(item.strip() for item in env[name].split(","))
    return ()


def _of_list(uuids: Mapping[str, str], text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for item in (part.strip() for part in text.split(",")):
        named = [i for i, uuid in uuids.items() if item and uuid.startswith(item)]
        index = item if item in uuids else named[0] if len(named) == 1 else None
        if index is None or index in found:
            break
        found[index] = None
    return tuple(index for index in uuids if index in found)
