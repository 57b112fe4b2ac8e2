"""Tries one decoder with bytes that reach new code in it, by atheris, if it is there.

Run: python -m tests.property.fuzz_coverage "plain result" -max_total_time=60

Arguments after the target are those of libFuzzer. It stops at the first finding, and
prints it. Atheris is no dependency: `pip install atheris` first.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    """Run until libFuzzer has had enough."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["shoal"]):
        targets = importlib.import_module("tests.property.fuzz_targets")
    target = targets.TARGETS[sys.argv[1]]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(targets.seeds_of(target)):
            (Path(folder) / str(number)).write_bytes(seed)
        arguments = [sys.argv[0], *sys.argv[2:], folder]
        atheris.Setup(arguments, lambda data: targets.tried(target, data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
