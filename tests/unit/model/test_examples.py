"""Every example brings the programs that it names, and they run as it says."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.spec.submission import load_spec

EXAMPLES = Path(__file__).parents[3] / "examples"
OWN = [
    path
    for path in sorted(EXAMPLES.glob("*.yaml"))
    if ".py" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("example", OWN, ids=lambda path: path.name)
def test_an_example_brings_the_programs_that_it_names(
    example: Path, tmp_path: Path
) -> None:
    spec = load_spec(example.read_text(encoding="utf-8"), "yaml")
    job = derive(spec, JobId("j"), OwnerId("ann"))
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, tmp_path)

    for group in job.groups:  # Each after those that it needs.
        first = group.tasks[0].work
        words = list(first.argv)
        assert first.workdir, "its programs would stay behind"
        assert words[0] in ("python", "torchrun")
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for output in first.outputs:
            assert (tmp_path / output).exists()
