# pyright: basic
# torch describes its types only in part.
"""Ask the question of `diloco_defaults.py` of models that no rule was chosen on.

Run: OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/diloco_held_out.py [MODEL ...]

Other architectures, losses and inner optimisers than there, and for each another number
of workers, rounds and inner steps. Six seeds, because those of one run differ.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import torch
from benchmarks.diloco_defaults import Batch, Measured, Task, measure, perceptron
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from shoal.train.programs.corpus import draw, library_text
from shoal.train.programs.layers import loss_of

SEEDS: Final = (1, 2, 3, 4, 5, 6)
KEPT_SEED: Final = 5


def chance(seed: int) -> torch.Generator:
    """Return a generator of its own."""
    return torch.Generator().manual_seed(seed)


class Tied(nn.Module):
    """Text by a gated mean of the bytes before; scores share the embedding."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Parameter(torch.randn(128, width) / width**0.5)
        self.mix = nn.Parameter(torch.zeros(context, context))
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self._after = 1e9 * torch.triu(torch.ones(context, context), 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of the byte after each."""
        known = self.embed[x]
        weights = (self.mix - self._after).softmax(dim=1)
        mixed = weights @ known
        state = known + self.out(torch.sigmoid(self.gate(known)) * mixed)
        return self.norm(state) @ self.embed.T


def tied_text() -> Task:
    """Return a model of text with one table for input and output, with AdamW."""
    training, kept = (each.clamp(max=127) for each in library_text(2_000_000))
    return Task(
        make=lambda: Measured(Tied(32, 12), loss_of),
        draw=lambda rows, by: draw(training, rows, 12, by),
        held_out=draw(kept, 512, 12, chance(0)),
        optimizer=partial(torch.optim.AdamW, lr=3e-3, weight_decay=0.01),
        batch=8,
        warmup=20,
        decay=True,
    )


def smoothed_cnn() -> Task:
    """Return a CNN with group norms and smoothed labels, with SGD and momentum."""
    shapes = torch.randn(6, 2, 4, 4, generator=chance(21))

    def batch(rows: int, by: torch.Generator) -> Batch:
        y = torch.randint(6, (rows,), generator=by)
        x = 0.8 * torch.randn(rows, 2, 8, 8, generator=by)
        for row, place in enumerate(torch.randint(5, (rows,), generator=by).tolist()):
            x[row, :, place : place + 4, 4 - place : 8 - place] += shapes[y[row]]
        return x, y

    def net() -> nn.Sequential:
        return nn.Sequential(
            *(nn.Conv2d(2, 8, 3), nn.GroupNorm(2, 8), nn.SiLU()),
            *(nn.Conv2d(8, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(128, 6)),
        )

    return Task(
        make=lambda: Measured(
            net(),
            partial(functional.cross_entropy, label_smoothing=0.1),
        ),
        draw=batch,
        held_out=batch(2_000, chance(KEPT_SEED)),
        optimizer=partial(torch.optim.SGD, lr=0.03, momentum=0.9, nesterov=True),
    )


def huber() -> Task:
    """Return a regression with outliers and a robust loss, with NAdam."""
    ways = torch.randn(10, 3, generator=chance(31))

    def batch(rows: int, by: torch.Generator) -> Batch:
        x = torch.randn(rows, 10, generator=by)
        found = x @ ways
        y = found[:, :1] * found[:, 1:2] / 4 + functional.relu(found[:, 2:])
        is_far = torch.rand(rows, 1, generator=by) < 0.05
        return x, y + is_far * 10 * torch.randn(rows, 1, generator=by)

    return Task(
        make=lambda: Measured(
            perceptron(10, 64, 32, 1, between=nn.GELU), functional.huber_loss
        ),
        draw=batch,
        held_out=batch(4_000, chance(KEPT_SEED)),
        optimizer=partial(torch.optim.NAdam, lr=1e-3),
    )


class Factors(nn.Module):
    """Ratings as products of what is known of a person and of a thing."""

    def __init__(self, people: int, things: int, width: int) -> None:
        super().__init__()
        self.people = nn.Parameter(torch.randn(people, width) / width**0.5)
        self.things = nn.Parameter(torch.randn(things, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return a rating for each pair."""
        return (self.people[x[:, 0]] * self.things[x[:, 1]]).sum(dim=1)


def factors() -> Task:
    """Return a factorisation of ratings, whose gradients are sparse, with Adagrad."""
    true = [torch.randn(n, 4, generator=chance(40 + n)) for n in (80, 60)]

    def batch(rows: int, by: torch.Generator) -> Batch:
        pairs = torch.stack(
            [torch.randint(n, (rows,), generator=by) for n in (80, 60)], dim=1
        )
        exact = (true[0][pairs[:, 0]] * true[1][pairs[:, 1]]).sum(dim=1) / 2
        return pairs, exact + 0.3 * torch.randn(rows, generator=by)

    return Task(
        make=lambda: Measured(Factors(80, 60, 6), functional.mse_loss),
        draw=batch,
        held_out=batch(4_000, chance(KEPT_SEED)),
        optimizer=partial(torch.optim.Adagrad, lr=0.1),
        batch=64,
    )


def contrast(seen: Tensor, again: Tensor) -> Tensor:
    """Return how badly views of the same are told from views of others."""
    both = functional.normalize(seen, dim=1) @ functional.normalize(again, dim=1).T
    return functional.cross_entropy(5 * both, torch.arange(len(both)))


class Views(nn.Module):
    """Two views of the same things, by one network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron(24, 48, 16, between=nn.ELU)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of telling them apart."""
        return contrast(self.net(x), self.net(y))


def contrastive() -> Task:
    """Return a contrastive loss over each batch, with RMSprop."""
    seen = torch.randn(8, 24, generator=chance(51))
    noise = torch.randn(16, 24, generator=chance(52))

    def batch(rows: int, by: torch.Generator) -> Batch:
        thing = torch.randn(rows, 8, generator=by) @ seen
        views = [thing + torch.randn(rows, 16, generator=by) @ noise for _ in range(2)]
        return views[0], views[1]

    return Task(
        make=Views,
        draw=batch,
        held_out=batch(512, chance(KEPT_SEED)),
        optimizer=partial(torch.optim.RMSprop, lr=1e-3),
        batch=16,
        decay=True,
    )


def shifted_digits() -> Task:
    """Return a CNN that reads digits, which a batch shifts by a pixel, with AdamW."""
    pictures, numbers = load_digits(return_X_y=True)
    x = torch.tensor(pictures / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(numbers)
    is_kept = torch.arange(len(y)) % 4 == 0
    x_train, y_train = x[~is_kept], y[~is_kept]

    def batch(rows: int, by: torch.Generator) -> Batch:
        chosen = torch.randint(len(y_train), (rows,), generator=by)
        down, right = torch.randint(-1, 2, (2,), generator=by).tolist()
        return x_train[chosen].roll((down, right), dims=(2, 3)), y_train[chosen]

    def net() -> nn.Sequential:
        return nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
            *(nn.Flatten(), nn.Linear(64, 10)),
        )

    return Task(
        make=lambda: Measured(net(), functional.cross_entropy),
        draw=batch,
        held_out=(x[is_kept], y[is_kept]),
        optimizer=partial(torch.optim.AdamW, lr=3e-3),
        batch=24,
        decay=True,
    )


class LongShort(nn.Module):
    """A long short-term memory over words; torch's own cannot be stacked."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.gates = nn.Linear(2 * width, 4 * width)
        self.scores = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of the word after each."""
        known = self.embed(x)
        state = cell = torch.zeros_like(known[:, 0])
        states: list[Tensor] = []
        for place in range(x.shape[1]):
            found = self.gates(torch.cat([known[:, place], state], dim=1))
            take, keep, give, fresh = found.chunk(4, dim=1)
            cell = keep.sigmoid() * cell + take.sigmoid() * fresh.tanh()
            state = give.sigmoid() * cell.tanh()
            states.append(state)
        return self.scores(torch.stack(states, dim=1))


def language() -> Task:
    """Return an LSTM of a language with three moods, which only words betray."""
    words, moods, length = 20, 3, 14
    table = (2 * torch.randn(moods, words, words, generator=chance(61))).softmax(-1)

    def batch(rows: int, by: torch.Generator) -> Batch:
        mood = torch.randint(moods, (rows,), generator=by)
        said = [torch.randint(words, (rows,), generator=by)]
        for _ in range(length):
            chances = table[mood, said[-1]]
            said.append(torch.multinomial(chances, 1, generator=by)[:, 0])
        text = torch.stack(said, dim=1)
        return text[:, :-1], text[:, 1:]

    return Task(
        make=lambda: Measured(LongShort(words, 24), loss_of),
        draw=batch,
        held_out=batch(1_000, chance(KEPT_SEED)),
        optimizer=partial(torch.optim.Adam, lr=4e-3),
        batch=8,
        warmup=10,
    )


def neighbours() -> Task:
    """Return vectors of words by what stands beside them, with negative samples."""
    words, topics = 120, 6
    pull = 2.5 * torch.randn(words, topics, generator=chance(71))
    beside = (pull @ pull.T / topics**0.5).softmax(-1)

    def batch(rows: int, by: torch.Generator) -> Batch:
        word = torch.randint(words, (rows,), generator=by)
        near = torch.multinomial(beside[word], 1, generator=by)[:, 0]
        is_true = torch.rand(rows, generator=by) < 0.5
        other = torch.randint(words, (rows,), generator=by)
        pairs = torch.stack([word, torch.where(is_true, near, other)], dim=1)
        return pairs, is_true.float()

    return Task(
        make=lambda: Measured(
            Factors(words, words, 8), functional.binary_cross_entropy_with_logits
        ),
        draw=batch,
        held_out=batch(4_000, chance(KEPT_SEED)),
        optimizer=partial(torch.optim.Adam, lr=1e-2),
        batch=48,
    )


MODELS: Final = {
    "shifted digits": (shifted_digits, 8, 20, 50),
    "language, lstm": (language, 8, 40, 20),
    "neighbours": (neighbours, 4, 100, 10),
    "tied text": (tied_text, 6, 40, 25),
    "smoothed cnn, sgd": (smoothed_cnn, 4, 30, 20),
    "huber, nadam": (huber, 16, 25, 40),
    "factors, adagrad": (factors, 3, 50, 16),
    "contrastive, rmsprop": (contrastive, 5, 100, 8),
    "tied text, long": (tied_text, 4, 150, 6),
    "huber, long": (huber, 8, 200, 5),
}
"""With workers, rounds and inner steps."""


def main() -> None:
    """Measure the models that are asked for, or all."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        make, workers, rounds, inner_steps = MODELS[name]
        with sdpa_kernel(SDPBackend.MATH):
            measure(name, make(), workers, rounds, inner_steps, SEEDS)


if __name__ == "__main__":
    main()
