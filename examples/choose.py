"""Print the best of all results that earlier steps left: the end of `pipeline.yaml`."""

import json
from pathlib import Path

files = Path().rglob("result.json")
results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
best = min(results, key=lambda result: result["loss"])
print(f"best of {len(results)}: seed {best['seed']} with loss {best['loss']:.5f}")
