# pyright: basic
# torch describes its types only in part.
"""The layers of a byte-level GPT, one after another, so that they can be split."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Embed(nn.Module):
    """Byte embedding plus position embedding."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Embedding(context, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Embed each byte."""
        places = torch.arange(x.shape[1], device=x.device)
        known: torch.Tensor = self.bytes(x) + self.places(places)
        return known


class Block(nn.Module):
    """A transformer block: causal attention, then an MLP."""

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
        """Apply attention and MLP, with residuals."""
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


class Head(nn.Module):
    """Projects to logits over 256 bytes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits for each position."""
        scores: torch.Tensor = self.scores(self.norm(x))
        return scores


def gpt_layers(context: int, width: int, heads: int, layers: int) -> list[nn.Module]:
    """Return all layers, in order."""
    blocks = [Block(width, heads) for _ in range(layers)]
    return [Embed(context, width), *blocks, Head(width)]


def loss_of(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the mean loss in nats a byte."""
    return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())
