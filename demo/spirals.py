"""Train a small network to tell two spirals apart, with numpy alone.

Run: python spirals.py --rate 0.01 --seed 1
"""

import argparse
from itertools import pairwise

import numpy as np

import shoal

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.01)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--epochs", type=int, default=2_500)
args = parser.parse_args()
rng = np.random.default_rng(args.seed)

# Two spirals of 500 points each, with some noise. Every fifth point is for the test.
turns = np.sqrt(rng.random(500)) * 4 * np.pi
spiral = np.stack([turns * np.cos(turns), turns * np.sin(turns)], axis=1)
points = np.concatenate([spiral, -spiral]) / 12 + rng.normal(0, 0.025, (1000, 2))
labels = np.repeat([0.0, 1.0], 500)
is_test = np.arange(1000) % 5 == 0
x, y = points[~is_test], labels[~is_test]

# Two hidden layers of 48.
sizes = [2, 48, 48, 1]
weights = [rng.normal(0, np.sqrt(2 / a), (a, b)) for a, b in pairwise(sizes)]
biases = [np.zeros(size) for size in sizes[1:]]
parameters = weights + biases
means = [np.zeros_like(p) for p in parameters]
squares = [np.zeros_like(p) for p in parameters]


def forward(inputs: np.ndarray) -> list[np.ndarray]:
    """Return what each layer puts out; the last is the chance of the second spiral."""
    layers = [inputs]
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        total = layers[-1] @ weight + bias
        is_last = number == len(weights) - 1
        layers.append(1 / (1 + np.exp(-total)) if is_last else np.tanh(total))
    return layers


for epoch in range(1, args.epochs + 1):
    layers = forward(x)
    chance = np.clip(layers[-1][:, 0], 1e-7, 1 - 1e-7)
    loss = -np.mean(y * np.log(chance) + (1 - y) * np.log(1 - chance))

    # Backwards: how the loss changes with each parameter.
    delta = ((chance - y) / len(y))[:, None]
    gradients = [np.empty(0)] * len(parameters)
    for number in reversed(range(len(weights))):
        gradients[number] = layers[number].T @ delta
        gradients[number + len(weights)] = delta.sum(axis=0)
        delta = (delta @ weights[number].T) * (1 - layers[number] ** 2)

    # Adam.
    for p, g, m, s in zip(parameters, gradients, means, squares, strict=True):
        m += 0.1 * (g - m)
        s += 0.001 * (g * g - s)
        step = m / (1 - 0.9**epoch) / (np.sqrt(s / (1 - 0.999**epoch)) + 1e-8)
        p -= args.rate * step

    if epoch % 50 == 0:
        guess = forward(points[is_test])[-1][:, 0] > 0.5
        right = np.mean(guess == labels[is_test])
        shoal.log({"loss": loss, "right": right}, progress=epoch / args.epochs)

print(f"rate {args.rate} seed {args.seed}: loss {loss:.4f}, {right:.1%} right")
