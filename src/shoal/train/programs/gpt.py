# pyright: basic
# torch describes its types only in part.
"""Train a byte-level GPT on the source text of Python's standard library.

Alone:     python -m shoal.train.programs.gpt --rounds 10 --inner_steps 50
Together:  shoal run examples/diloco-gpt.yaml

It prints one line of JSON a second, and leaves out/model.safetensors.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from shoal.train.arguments import program_params
from shoal.train.join import join

# Settings; a job gives others as params.
params = program_params(
    seed=1,
    batch=16,  # sequences a step
    context=64,  # bytes that the model sees
    width=64,
    heads=4,
    layers=2,
    lr=3e-3,
    weight_decay=0.1,
    warmup=50,  # steps
    corpus_bytes=6_000_000,
    validation_batches=8,
    threads=1,
)

torch.set_num_threads(params.threads)

# Data: bytes of the standard library; every twentieth block of 4 KiB is for validation.
library = Path(sysconfig.get_path("stdlib"))
files = sorted(library.glob("*.py")) + sorted(library.glob("*/*.py"))
text = b"".join(path.read_bytes() for path in files)[: params.corpus_bytes]
blocks = [text[start : start + 4096] for start in range(0, len(text) - 4096, 4096)]
validation = torch.frombuffer(
    bytearray(b"".join(blocks[::20])), dtype=torch.uint8
).long()
training = torch.frombuffer(
    bytearray(b"".join(block for n, block in enumerate(blocks) if n % 20)),
    dtype=torch.uint8,
).long()


def batch(source: torch.Tensor, chance: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw sequences, and the same moved on by one byte."""
    last = len(source) - params.context - 1
    starts = torch.randint(last, (params.batch,), generator=chance).tolist()
    rows = torch.stack([source[at : at + params.context + 1] for at in starts])
    return rows[:, :-1], rows[:, 1:]


# Model.
class Block(nn.Module):
    """Attention to what came before, then a layer for each position alone."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to `x` what this block has to say."""
        rows, length, width = x.shape
        parts = self.attend(self.norm1(x)).split(width, dim=2)
        query, key, value = (
            part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts
        )
        seen = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        x = x + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        thought: torch.Tensor = self.think(self.norm2(x))
        return x + thought


class GPT(nn.Module):
    """Says what byte comes next; `forward` returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, params.width)
        self.places = nn.Embedding(params.context, params.width)
        self.blocks = nn.Sequential(
            *(Block(params.width, params.heads) for _ in range(params.layers))
        )
        self.norm = nn.LayerNorm(params.width)
        self.head = nn.Linear(params.width, 256, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean loss in nats a byte."""
        hidden = self.bytes(x) + self.places(torch.arange(x.shape[1]))
        scores = self.head(self.norm(self.blocks(hidden)))
        return functional.cross_entropy(scores.flatten(0, 1), y.flatten())


torch.manual_seed(params.seed)  # All workers begin with the same weights.
model = GPT()
optimizer = torch.optim.AdamW(
    model.parameters(), lr=params.lr, weight_decay=params.weight_decay
)
warm_up = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min(1.0, (step + 1) / params.warmup)
)


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return the loss on validation batches that are the same for everybody."""
    chance = torch.Generator().manual_seed(0)
    losses = [
        model(*batch(validation, chance)).item()
        for _ in range(params.validation_batches)
    ]
    return {"loss": sum(losses) / len(losses)}


# Loop. Each worker draws its own batches, and others if it starts again.
with join(model, params.all, validate=measure, keep=[optimizer, warm_up]) as run:
    chance = torch.Generator().manual_seed(params.data_seed + run.round)
    while not run.finished:
        loss = run.model(*batch(training, chance))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
        run.step(samples=params.batch, loss=loss.item())
