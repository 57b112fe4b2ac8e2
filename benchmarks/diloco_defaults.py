# pyright: basic
# torch describes its types only in part.
"""Ask whether DiLoCo's default outer step learns as well as training in step.

Run: OMP_NUM_THREADS=1 python benchmarks/diloco_defaults.py [MODEL ...] >> results.jsonl

This is an independent DiLoCo in plain torch: no nodes, no files, no compression. Only
the outer step is that of shoal, so it is the very rule that is measured. All replicas
are in one process, stacked along a first axis; optimisers are elementwise, so each
replica has the state that it would have alone.

"In step" is one model that takes as many inner steps, with the gradient averaged over
the batches of all workers at every step: the same samples, optimiser and schedule.
All rules see the same batches. Losses are of data that nobody trains on. Some runs of
`CHOSEN_ON` were looked at when the rule was chosen; the other models were not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from shoal.train.diloco import outer
from shoal.train.programs.corpus import draw, library_text
from shoal.train.programs.layers import gpt_layers, loss_of

RUNS: Final = (
    (8, 20, 30),
    (2, 20, 30),
    (8, 200, 5),
    (4, 20, 30),
    (2, 200, 5),
    (8, 60, 10),
    (4, 60, 10),
)
"""Workers, rounds and inner steps: few enough that a run takes a minute."""

SEEDS: Final = (1, 2, 3)
CHOSEN_ON: Final = ("gpt", "digits", "teacher", "regression", "cnn", "gru")
RULES: Final = ("before", "now")

Weights = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """A model with its data and its inner optimiser."""

    make: Callable[[], nn.Module]  # whose `forward` returns the loss
    draw: Callable[[int, torch.Generator], Batch]
    held_out: Batch
    optimizer: Callable[[list[Tensor]], torch.optim.Optimizer]
    batch: int = 16
    warmup: int = 1
    decay: bool = False  # to a tenth, at the end of the run

    def rate(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate."""
        fall = 1.0 - 0.9 * step / steps if self.decay else 1.0
        return min(1.0, (step + 1) / self.warmup) * fall


class Measured(nn.Module):
    """A network and its loss."""

    def __init__(self, net: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss."""
        return self.loss(self.net(x), y)


# Training.


class Replicas:
    """Models side by side, each with weights and an inner optimiser of its own."""

    def __init__(self, task: Task, weights: Weights) -> None:
        self.weights = {n: w.clone().requires_grad_() for n, w in weights.items()}
        self.optimizer = task.optimizer(list(self.weights.values()))
        self._rate = self.optimizer.param_groups[0]["lr"]
        model = task.make()
        self._losses = vmap(lambda w, x, y: functional_call(model, w, (x, y)))

    def step(self, x: Tensor, y: Tensor, rate: float) -> None:
        """Take one inner step, each replica with its row of the batches."""
        self.optimizer.param_groups[0]["lr"] = self._rate * rate
        self.optimizer.zero_grad()
        self._losses(self.weights, x, y).sum().backward()
        self.optimizer.step()

    @torch.no_grad()
    def flat(self) -> Tensor:
        """Return the weights, one row for each replica."""
        return torch.cat([w.flatten(1) for w in self.weights.values()], dim=1)

    @torch.no_grad()
    def assign(self, flat: Tensor) -> None:
        """Set the weights; what the optimisers remember stays."""
        sizes = [w[0].numel() for w in self.weights.values()]
        parts = flat.split(sizes, dim=1)
        for weights, part in zip(self.weights.values(), parts, strict=True):
            weights.copy_(part.reshape(weights.shape))

    @torch.no_grad()
    def held_out_losses(self, task: Task, every: int = 1) -> list[float]:
        """Return the loss of each replica, or of one in so many."""
        model = task.make()
        rows = len(next(iter(self.weights.values())))
        each = [
            {n: w[i] for n, w in self.weights.items()} for i in range(0, rows, every)
        ]
        return [functional_call(model, w, task.held_out).item() for w in each]


def first_weights(task: Task, seeds: tuple[int, ...], copies: int) -> Weights:
    """Return initial weights, `copies` rows for each seed."""
    models: list[nn.Module] = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(task.make())
    named = [dict(model.named_parameters()) for model in models]
    return {
        name: torch.stack([each[name].detach() for each in named]).repeat_interleave(
            copies, dim=0
        )
        for name in named[0]
    }


class Diloco:
    """All workers of all seeds under all rules, in this order from the inside out."""

    def __init__(
        self, task: Task, seeds: tuple[int, ...], workers: int, rounds: int
    ) -> None:
        before = outer.Outer(rate=0.7, momentum=0.9)
        rules = before, outer.Outer(rounds=rounds)
        first = first_weights(task, seeds * len(RULES), workers)
        self.replicas = Replicas(task, first)
        self._workers, self._samples = workers, [task.batch] * workers
        self._rules = [rule for rule in rules for _ in seeds]
        self._shared = self.replicas.flat()[::workers].clone()
        self._momentum = torch.zeros_like(self._shared)
        self._rounds_done = 0

    def sync(self) -> None:
        """Take the outer step of each seed and rule, and begin from there."""
        own = self.replicas.flat().unflatten(0, (len(self._rules), self._workers))
        deltas = (self._shared[:, None] - own).numpy()
        for row, rule in enumerate(self._rules):
            parts = list(zip(deltas[row], self._samples, strict=True))
            add, momentum = outer.step(
                rule,
                outer.weighted_mean(parts),
                self._momentum[row].numpy(),
                rounds_done=self._rounds_done,
                workers=outer.equal_workers(self._samples),
            )
            self._shared[row] += torch.from_numpy(add)
            self._momentum[row] = torch.from_numpy(momentum)
        self._rounds_done += 1
        self.replicas.assign(self._shared.repeat_interleave(self._workers, dim=0))


Losses = dict[str, list[float]]
"""By how it was trained: in step, or with a rule. One for each seed."""


def train(
    task: Task, workers: int, rounds: int, inner_steps: int, seeds: tuple[int, ...]
) -> Losses:
    """Return the losses at the end."""
    diloco = Diloco(task, seeds, workers, rounds)
    in_step = Replicas(task, first_weights(task, seeds, 1))
    chances = [
        torch.Generator().manual_seed(1_000 * seed + worker + 1)
        for seed in seeds
        for worker in range(workers)
    ]
    steps = rounds * inner_steps
    for step in range(steps):
        drawn = [task.draw(task.batch, chance) for chance in chances]
        x, y = (torch.stack(part) for part in zip(*drawn, strict=True))
        rate = task.rate(step, steps)
        diloco.replicas.step(
            torch.cat([x] * len(RULES)), torch.cat([y] * len(RULES)), rate
        )
        shape = len(seeds), workers * task.batch
        in_step.step(
            x.reshape(*shape, *x.shape[2:]), y.reshape(*shape, *y.shape[2:]), rate
        )
        if (step + 1) % inner_steps == 0:
            diloco.sync()
    return losses_of(task, in_step, diloco, seeds, workers)


def losses_of(
    task: Task,
    in_step: Replicas,
    diloco: Diloco,
    seeds: tuple[int, ...],
    workers: int,
) -> Losses:
    """Return what all have come to; after a sync, workers of a seed are equal."""
    reached = diloco.replicas.held_out_losses(task, every=workers)
    by_rule = [
        reached[at : at + len(seeds)] for at in range(0, len(reached), len(seeds))
    ]
    return {
        "in_step": in_step.held_out_losses(task),
        **dict(zip(RULES, by_rule, strict=True)),
    }


# Models.


def gpt(*, decay: bool = False) -> Task:
    """Return the GPT of shoal's program, smaller."""
    context = 16
    training, kept = library_text(3_000_000)
    return Task(
        make=lambda: Measured(nn.Sequential(*gpt_layers(context, 32, 4, 1)), loss_of),
        draw=lambda rows, chance: draw(training, rows, context, chance),
        held_out=draw(kept, 512, context, torch.Generator().manual_seed(0)),
        optimizer=partial(torch.optim.AdamW, lr=4e-3, weight_decay=0.1),
        batch=4,
        warmup=50,
        decay=decay,
    )


def digits() -> Task:
    """Return the model of shoal's program that reads digits, as it is."""
    pictures, numbers = load_digits(return_X_y=True)
    x = torch.tensor(pictures / 16.0, dtype=torch.float32)
    y = torch.tensor(numbers)
    is_kept = torch.arange(len(y)) % 5 == 0
    x_train, y_train = x[~is_kept], y[~is_kept]

    def batch(rows: int, chance: torch.Generator) -> Batch:
        chosen = torch.randint(len(y_train), (rows,), generator=chance)
        return x_train[chosen], y_train[chosen]

    return Task(
        make=lambda: Measured(perceptron(64, 64, 10), functional.cross_entropy),
        draw=batch,
        held_out=(x[is_kept], y[is_kept]),
        optimizer=partial(torch.optim.AdamW, lr=2e-3),
        batch=32,
    )


def perceptron(*sizes: int, between: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Return linear layers with something between them."""
    layers: list[nn.Module] = []
    for size, following in pairwise(sizes):
        layers += [nn.Linear(size, following), between()]
    return nn.Sequential(*layers[:-1])


def teacher() -> Task:
    """Return an MLP that learns the classes of another; one label in ten is wrong."""
    chance = torch.Generator().manual_seed(99)
    first = torch.randn(32, 64, generator=chance) / 32**0.5 * 2
    second = torch.randn(64, 10, generator=chance) / 8 * 3

    def batch(rows: int, chance: torch.Generator) -> Batch:
        x = torch.randn(rows, 32, generator=chance)
        y = (torch.tanh(x @ first) @ second).argmax(-1)
        is_wrong = torch.rand(rows, generator=chance) < 0.1
        return x, torch.where(is_wrong, torch.randint(10, (rows,), generator=chance), y)

    return Task(
        make=lambda: Measured(perceptron(32, 64, 64, 10), functional.cross_entropy),
        draw=batch,
        held_out=batch(2_000, torch.Generator().manual_seed(5)),
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
    )


def regression() -> Task:
    """Return an MLP with tanh that learns a noisy function, with Adam."""
    waves = torch.randn(8, 12, generator=torch.Generator().manual_seed(7))

    def batch(rows: int, chance: torch.Generator) -> Batch:
        x = torch.randn(rows, 8, generator=chance)
        noise = 0.1 * torch.randn(rows, 1, generator=chance)
        return x, torch.sin(x @ waves).mean(dim=1, keepdim=True) * 2 + noise

    return Task(
        make=lambda: Measured(
            perceptron(8, 48, 48, 1, between=nn.Tanh), functional.mse_loss
        ),
        draw=batch,
        held_out=batch(4_000, torch.Generator().manual_seed(5)),
        optimizer=partial(torch.optim.Adam, lr=2e-3),
        batch=32,
    )


def cnn() -> Task:
    """Return a CNN that finds which of ten patterns is in a noisy picture."""
    patterns = torch.randn(10, 5, 5, generator=torch.Generator().manual_seed(8))

    def batch(rows: int, chance: torch.Generator) -> Batch:
        y = torch.randint(10, (rows,), generator=chance)
        x = torch.randn(rows, 1, 10, 10, generator=chance)
        tops, lefts = torch.randint(6, (2, rows), generator=chance).tolist()
        for row, (top, left) in enumerate(zip(tops, lefts, strict=True)):
            x[row, 0, top : top + 5, left : left + 5] += patterns[y[row]]
        return x, y

    return Task(
        make=lambda: Measured(
            nn.Sequential(
                nn.Conv2d(1, 8, 5),
                nn.ReLU(),
                nn.Conv2d(8, 8, 3),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(128, 10),
            ),
            functional.cross_entropy,
        ),
        draw=batch,
        held_out=batch(2_000, torch.Generator().manual_seed(5)),
        optimizer=partial(torch.optim.AdamW, lr=2e-3),
        decay=True,
    )


class Recurrent(nn.Module):
    """A gated recurrent unit over bytes; torch's own cannot be stacked."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(128, width)
        self.gates = nn.Linear(2 * width, 2 * width)
        self.fresh = nn.Linear(2 * width, width)
        self.scores = nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of the byte after each."""
        known = self.embed(x)
        state = torch.zeros_like(known[:, 0])
        states: list[Tensor] = []
        for place in range(x.shape[1]):
            both = torch.cat([known[:, place], state], dim=1)
            reset, update = torch.sigmoid(self.gates(both)).chunk(2, dim=1)
            again = torch.cat([known[:, place], reset * state], dim=1)
            state = update * state + (1 - update) * torch.tanh(self.fresh(again))
            states.append(state)
        return self.scores(torch.stack(states, dim=1))


def gru() -> Task:
    """Return a recurrent model of text, with Adam."""
    training, kept = (each.clamp(max=127) for each in library_text(2_000_000))
    return Task(
        make=lambda: Measured(Recurrent(24), loss_of),
        draw=lambda rows, chance: draw(training, rows, 8, chance),
        held_out=draw(kept, 512, 8, torch.Generator().manual_seed(0)),
        optimizer=partial(torch.optim.Adam, lr=3e-3),
        batch=8,
    )


def transformer() -> Task:
    """Return a transformer of text with SGD and momentum for its inner steps."""
    training, kept = (each.clamp(max=127) for each in library_text(2_000_000))
    return Task(
        make=lambda: Measured(nn.Sequential(*gpt_layers(8, 16, 2, 2)), loss_of),
        draw=lambda rows, chance: draw(training, rows, 8, chance),
        held_out=draw(kept, 512, 8, torch.Generator().manual_seed(0)),
        optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9),
        batch=8,
        warmup=50,
    )


def linear() -> Task:
    """Return a linear regression in 64 directions of unequal scale, with plain SGD."""
    scales = torch.logspace(0, -2, 64)
    wanted = torch.randn(64, 1, generator=torch.Generator().manual_seed(3))

    def batch(rows: int, chance: torch.Generator) -> Batch:
        x = torch.randn(rows, 64, generator=chance) * scales
        return x, x @ wanted + 0.3 * torch.randn(rows, 1, generator=chance)

    return Task(
        make=lambda: Measured(nn.Linear(64, 1), functional.mse_loss),
        draw=batch,
        held_out=batch(4_000, torch.Generator().manual_seed(5)),
        optimizer=partial(torch.optim.SGD, lr=0.02),
    )


def autoencoder() -> Task:
    """Return an MLP that squeezes noisy pictures of digits into eight numbers."""
    pictures, _ = load_digits(return_X_y=True)
    x = torch.tensor(pictures / 16.0, dtype=torch.float32)
    is_kept = torch.arange(len(x)) % 5 == 0
    training = x[~is_kept]

    def batch(rows: int, chance: torch.Generator) -> Batch:
        wanted = training[torch.randint(len(training), (rows,), generator=chance)]
        return wanted + 0.2 * torch.randn(wanted.shape, generator=chance), wanted

    return Task(
        make=lambda: Measured(
            perceptron(64, 48, 8, 48, 64, between=nn.GELU), functional.mse_loss
        ),
        draw=batch,
        held_out=(x[is_kept], x[is_kept]),
        optimizer=partial(torch.optim.AdamW, lr=2e-3),
        warmup=20,
    )


class Residual(nn.Module):
    """Two layers whose output is added to their input, as in a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.SiLU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input, changed a little."""
        return x + self.inside(x)


def residual() -> Task:
    """Return a network with layer norms that tells which of two sums is larger."""

    def batch(rows: int, chance: torch.Generator) -> Batch:
        x = torch.randn(rows, 24, generator=chance)
        signs = x[:, :8].prod(dim=1).sign() + x[:, 8:16].tanh().sum(dim=1)
        return x, (signs > x[:, 16:].sum(dim=1)).long()

    return Task(
        make=lambda: Measured(
            nn.Sequential(
                nn.Linear(24, 32), Residual(32), Residual(32), nn.Linear(32, 2)
            ),
            functional.cross_entropy,
        ),
        draw=batch,
        held_out=batch(4_000, torch.Generator().manual_seed(5)),
        optimizer=partial(torch.optim.AdamW, lr=1e-3, betas=(0.9, 0.95)),
        batch=8,
        warmup=30,
        decay=True,
    )


MODELS: Final[dict[str, Callable[[], Task]]] = {
    "gpt": gpt,
    "gpt, decayed": partial(gpt, decay=True),
    "digits": digits,
    "teacher": teacher,
    "regression": regression,
    "cnn": cnn,
    "gru": gru,
    "transformer, sgd": transformer,
    "linear, sgd": linear,
    "autoencoder": autoencoder,
    "residual, decayed": residual,
}


def measure(
    name: str,
    task: Task,
    workers: int,
    rounds: int,
    inner_steps: int,
    seeds: tuple[int, ...] = SEEDS,
) -> None:
    """Print a line for a run of all seeds."""
    began = time.monotonic()
    losses = train(task, workers, rounds, inner_steps, seeds)
    means = {how: sum(each) / len(each) for how, each in losses.items()}
    line: dict[str, Any] = {
        "benchmark": "diloco_defaults",
        "model": name,
        "held_out": name not in CHOSEN_ON,
        "workers": workers,
        "rounds": rounds,
        "inner_steps": inner_steps,
        "losses": {how: [round(x, 5) for x in each] for how, each in losses.items()},
        **{
            f"{how}_percent": round(100 * (means[how] / means["in_step"] - 1), 2)
            for how in RULES
        },
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Measure the models that are asked for, or all."""
    torch.set_num_threads(1)
    for workers, rounds, inner_steps in RUNS:
        for name in sys.argv[1:] or MODELS:
            with sdpa_kernel(SDPBackend.MATH):  # The only one that stacks.
                measure(name, MODELS[name](), workers, rounds, inner_steps)


if __name__ == "__main__":
    main()
