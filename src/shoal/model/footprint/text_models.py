"""Estimate a training task's memory from what its spec says of the model.

Weights, gradients and the optimizer's moments are counted by the parameter; what the
layers hand on by the token. It is an estimate for the programs that come
with shoal, checked against real runs; a job that names its own `ram` is believed.

On a GPU there are the tensors of training alone, as torch itself counts them. Copies
for others and checkpoints are in the memory of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.model.job import Scalar

PROCESS_BYTES: Final = 330 << 20
"""Python with torch loaded, before there is any model."""

BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
MOMENTS: Final = {"sgd": 0, "momentum": 1, "adamw": 2}
"""Numbers in single precision that an optimizer keeps for each parameter."""

COPIES: Final = {"sgd": 1, "momentum": 1, "adamw": 2}
"""Of all weights for a moment: when they are written, and in the optimizer's step."""

DILOCO_COPIES: Final = 3
"""Shared weights, what compression lost, and a delta on its way."""

CENTRE_MOST: Final = 2
"""With more workers each may average a share, and then knows the momentum of all."""

PER_TOKEN: Final = 24
"""Numbers that a block keeps for each of its width, and each token, to go back."""

PER_TOKEN_GPU: Final = 16
"""The same on a GPU, whose allocator loses less between tensors."""

GPU_CONTEXT_BYTES: Final = 512 << 20
"""An allowance for what a GPU's driver and libraries keep for each process."""

MEASURED_ROWS: Final = 64
PER_TOKEN_MEASURED: Final = 18
"""The same when nothing goes back, in the widest place of a block."""

VOCABULARY: Final = 256
_GPT: Final = {"batch": 16, "context": 64, "width": 64, "layers": 2}
_PIPELINE: Final = {**_GPT, "layers": 4}


def gpt_parameters(*, context: int, width: int, layers: int) -> int:
    """Return how many parameters the byte-level GPT has."""
    block = 12 * width * width + 9 * width
    return (VOCABULARY + context) * width + layers * block + (2 + VOCABULARY) * width


def training_bytes(
    parameters: int,
    *,
    activations: int,
    optimizer: str = "adamw",
    precision: str = "float32",
    copies: int | None = None,
) -> int:
    """Return the memory of a task that trains this many parameters.

    `activations` are the numbers that the layers keep for one batch.
    """
    size = BYTES[precision]
    copied = COPIES[optimizer] if copies is None else copies
    each = 2 * size + 4 * MOMENTS[optimizer] + 4 * copied
    return PROCESS_BYTES + parameters * each + activations * size


def ram_of(recipe: str, params: Mapping[str, Scalar], most: int) -> int | None:
    """Return the memory of one task of a recipe; None if unknown."""
    by_layers = _whole(params, "inner.pipeline", 1)
    ranks = max(_whole(params, f"inner.{kind}", 1) for kind in ("ddp", "fsdp"))
    if by_layers > 1:
        recipe, most, ranks = "pipeline", by_layers, by_layers
    if params.get("inner.over") == "machines":
        ranks = 1  # Each is a task of its own.
    need = _process_bytes(recipe, params, most)
    return None if need is None else ranks * need


def gpu_memory_of(recipe: str, params: Mapping[str, Scalar], most: int) -> int | None:
    """Return the memory of each GPU of a recipe's task; None if unknown."""
    if (by_layers := _whole(params, "inner.pipeline", 1)) > 1:
        recipe, most = "pipeline", by_layers
    tensors = gpu_tensor_bytes(recipe, params, most)
    return None if tensors is None else GPU_CONTEXT_BYTES + tensors


def gpu_tensor_bytes(
    recipe: str, params: Mapping[str, Scalar], most: int
) -> int | None:
    """Return what torch allocates on a GPU; one process trains on each."""
    program = params.get("program", "pipeline_gpt" if recipe == "pipeline" else "gpt")
    if program not in ("gpt", "pipeline_gpt"):
        return None
    context, width, layers, batch = _sizes_of(str(program), params)
    parameters = gpt_parameters(context=context, width=width, layers=layers)
    kept = batch * context * (layers * PER_TOKEN_GPU * width + 3 * VOCABULARY)
    if recipe == "pipeline":
        parameters, kept = -(-parameters // most), kept // most
    optimizer = _optimizer_of(params)
    numbers = 2 + MOMENTS[optimizer] + 1  # One copy, for a moment, in its step.
    precision = str(params.get("precision", "float32"))
    return 4 * numbers * parameters + BYTES.get(precision, 4) * kept


def _sizes_of(program: str, params: Mapping[str, Scalar]) -> tuple[int, int, int, int]:
    """Return context, width, layers and batch of a byte-level GPT."""
    defaults = _PIPELINE if program == "pipeline_gpt" else _GPT
    sizes = {name: _whole(params, name, default) for name, default in defaults.items()}
    return sizes["context"], sizes["width"], sizes["layers"], sizes["batch"]


def _optimizer_of(params: Mapping[str, Scalar]) -> str:
    named = str(params.get("optimizer", "adamw"))
    return named if named in MOMENTS else "adamw"


def _process_bytes(recipe: str, params: Mapping[str, Scalar], most: int) -> int | None:
    """Return the memory of one process that trains; None if unknown."""
    program = params.get("program", "pipeline_gpt" if recipe == "pipeline" else "gpt")
    agent = PROCESS_BYTES if recipe == "ddp" else 0  # It loads torch as well.
    if program == "digits":
        return agent + training_bytes(20_000, activations=100_000)
    if program not in ("gpt", "pipeline_gpt"):
        return None
    context, width, layers, batch = _sizes_of(str(program), params)
    parameters = gpt_parameters(context=context, width=width, layers=layers)
    tokens = batch * context
    trained = tokens * (layers * PER_TOKEN * width + 3 * VOCABULARY)
    measured = MEASURED_ROWS * context * (PER_TOKEN_MEASURED * width + 2 * VOCABULARY)
    if recipe == "pipeline":
        # All peers make all layers, but each trains only its share of them.
        share = -(-parameters // most)
        kept = parameters * 4
        return kept + training_bytes(share, activations=trained // most)
    optimizer = _optimizer_of(params)
    copies = COPIES[optimizer] + (DILOCO_COPIES if recipe == "diloco" else 0)
    if recipe == "diloco" and most > CENTRE_MOST and params.get("reduce") != "central":
        copies += 1
    return agent + training_bytes(
        parameters,
        activations=max(trained, measured),
        optimizer=optimizer,
        copies=copies,
    )


def _whole(params: Mapping[str, Scalar], name: str, default: int) -> int:
    """Return a param as a number; what is none is the program's to complain about."""
    value = params.get(name, default)
    try:
        return max(1, int(value))
    except ValueError:
        return default
