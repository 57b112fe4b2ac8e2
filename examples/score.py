"""Score one shard of some data: `array.yaml` runs it for every shard."""

import argparse
import random

parser = argparse.ArgumentParser()
parser.add_argument("--shard", type=int, required=True)
args = parser.parse_args()

chance = random.Random(args.shard)
scores = [chance.random() for _ in range(1_000)]
print(f"shard {args.shard}: {sum(scores) / len(scores):.4f}")
