"""Fit a line by stochastic gradient descent; no package is needed.

`train.yaml`, `sweep.yaml` and `pipeline.yaml` run it. It reads `data/train.csv`
if an earlier step has left it, and leaves `result.json` in the folder of `--out`.
"""

import argparse
import csv
import json
import os
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--out", type=Path, default=Path("out"))
args = parser.parse_args()

chance = random.Random(args.seed)
file = Path("data/train.csv")
if file.exists():
    with file.open(encoding="utf-8") as lines:
        points = [(float(x), float(y)) for x, y in csv.reader(lines)]
else:
    points = [(x / 50, 3 * x / 50 - 1) for x in range(50)]

slope, offset, loss = chance.uniform(-1, 1), 0.0, 0.0
for epoch in range(args.epochs):
    chance.shuffle(points)
    loss = 0.0
    for x, y in points:
        error = slope * x + offset - y
        slope -= args.lr * error * x
        offset -= args.lr * error
        loss += error * error / len(points)
    print(f"epoch {epoch} loss {loss:.5f}")

if os.environ.get("RANK", "0") == "0":
    args.out.mkdir(parents=True, exist_ok=True)
    result = {"lr": args.lr, "seed": args.seed, "loss": loss}
    (args.out / "result.json").write_text(json.dumps(result), encoding="utf-8")
