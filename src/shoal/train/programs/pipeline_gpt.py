# pyright: basic
# torch describes its types only in part.
"""Train a GPT that is split by layers over several peers.

Alone:     python -m shoal.train.programs.pipeline_gpt --rounds 2 --inner_steps 10
Together:  shoal run examples/pipeline-gpt.yaml
"""

from __future__ import annotations

import torch

from shoal.train.arguments import program_params
from shoal.train.devices import choose_device
from shoal.train.gangs.pipeline import PipelineRun
from shoal.train.programs.corpus import draw, library_text
from shoal.train.programs.layers import gpt_layers, loss_of

# Settings; a job gives others as params.
params = program_params(
    seed=1,
    batch=16,  # sequences a step
    micro_batches=4,
    context=64,  # bytes that the model sees
    width=64,
    heads=4,
    layers=4,
    lr=3e-3,
    corpus_bytes=6_000_000,
    threads=1,
)
torch.set_num_threads(params.threads)
device = choose_device()  # a GPU, if this task was lent one

# Data: all peers of a pipeline draw the same batches.
training = library_text(params.corpus_bytes)[0].to(device)

# Model: every peer makes all layers from the same seed, and keeps those it computes.
torch.manual_seed(params.seed)
layers = gpt_layers(params.context, params.width, params.heads, params.layers)

with PipelineRun(
    layers,
    params.all,
    example=training[: params.context].repeat(params.batch // params.micro_batches, 1),
    loss=loss_of,
    optimizer=lambda weights: torch.optim.AdamW(weights, lr=params.lr),
    micro_batches=params.micro_batches,
) as run:
    while not run.finished:
        seed = params.seed * 1_000_003 + run.data_seed + run.steps
        chance = torch.Generator().manual_seed(seed)
        run.step(*draw(training, params.batch, params.context, chance))
