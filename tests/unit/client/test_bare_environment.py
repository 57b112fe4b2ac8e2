"""What a task is told whose Python environment has none of what a client needs."""

import subprocess
import sys
from pathlib import Path

import pytest

import shoal

ASK = """
import sys
sys.path.insert(0, {source!r})
import shoal
try:
    shoal.{name}
except ImportError as error:
    print(error)
else:
    print("there")
"""


@pytest.mark.parametrize("name", ["Client", "task", "log"])
def test_a_client_names_the_packages_that_it_needs(name: str) -> None:
    source = str(Path(shoal.__file__).parents[1])
    bare = [sys.executable, "-I", "-S", "-c", ASK.format(source=source, name=name)]

    told = subprocess.run(bare, capture_output=True, text=True, check=True).stdout

    if name == "log":
        assert told == "there\n"
    else:
        assert "'cloudpickle', 'protobuf>=6.33.5,<7', 'msgspec', 'pathspec'" in told
        assert f"shoal.{name} needs packages" in told
