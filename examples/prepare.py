"""Make the data that `train.py` reads: the first step of `pipeline.yaml`."""

import argparse
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="wikitext")
args = parser.parse_args()

chance = random.Random(args.dataset)
Path("data").mkdir(exist_ok=True)
with Path("data/train.csv").open("w", encoding="utf-8") as file:
    for _ in range(200):
        x = chance.random()
        file.write(f"{x},{2 * x + chance.gauss(0, 0.01)}\n")
print(f"200 points of {args.dataset}")
