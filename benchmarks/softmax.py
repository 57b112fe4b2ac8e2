"""A softmax regression in numpy, for benchmarks of failures.

A worker of it starts in the time that Python needs: importing torch takes seconds, and
on a busy machine that would be what a benchmark of failures measures. Labels are drawn
from the chances that hidden weights give, so that losses stay apart from zero. A step
takes at least `step_s`, as if a device computed it.
"""

from __future__ import annotations

import os
import time

import numpy as np

from shoal.train.arguments import program_params
from shoal.train.diloco.compression import Array
from shoal.train.diloco.session import DilocoSession
from shoal.train.settings import settings_of
from shoal.train.task_context import TaskContext
from shoal.train.weights import ArrayWeights

FEATURES, CLASSES, KEPT = 48, 10, 4_096

params = program_params(seed=1, batch=32, lr=5e-3, step_s=0.0)
rng = np.random.default_rng(0)
hidden = rng.normal(size=(FEATURES, CLASSES)).astype(np.float32) / 2


def drawn(chance: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """Return points and their classes, one of which is 1."""
    x = chance.normal(size=(rows, FEATURES)).astype(np.float32)
    noise = chance.gumbel(size=(rows, CLASSES))
    return x, np.eye(CLASSES, dtype=np.float32)[(x @ hidden + noise).argmax(-1)]


def chances(x: Array) -> Array:
    """Return the chances of all classes, by the weights as they are."""
    scores = x @ weights
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True), dtype=np.float32)


def measure() -> dict[str, float]:
    """Return the loss on points that nobody trains with."""
    return {"loss": float(-(y_kept * np.log(chances(x_kept))).sum(-1).mean())}


x_kept, y_kept = drawn(rng, KEPT)
weights = np.zeros((FEATURES, CLASSES), dtype=np.float32)
first, second = np.zeros_like(weights), np.zeros_like(weights)
around = TaskContext.of(os.environ)
draw = np.random.default_rng((params.data_seed, around.life))
with DilocoSession(
    around.exchange(),
    settings_of(params.all),
    life=around.life,
    aggregator=around.aggregator,
    weights=ArrayWeights({"weights": weights}),
    validate=measure,
) as run:
    steps, began = 0, time.monotonic()
    while not run.finished:
        x, y = drawn(draw, params.batch)
        guess = chances(x)
        gradient = x.T @ (guess - y) / params.batch
        steps += 1
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        scale = np.sqrt(second / (1 - 0.999**steps)) + 1e-8
        weights -= params.lr * first / (1 - 0.9**steps) / scale
        loss = float(-(y * np.log(guess + 1e-9)).sum(-1).mean())
        time.sleep(max(0.0, began + params.step_s - time.monotonic()))
        run.step(params.batch, loss)
        began = time.monotonic()
