"""The compiled API in the repository is that of its proto."""

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.api.methods import snake
from shoal.api.service.service import Service

SRC = Path(__file__).parents[3] / "src"


@pytest.mark.parametrize("name", ["shoal_pb2.py", "shoal_pb2.pyi"])
def test_compiling_the_proto_again_gives_what_is_committed(
    name: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(SRC)]
    command += [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]

    subprocess.run([*command, "shoal/api/shoal.proto"], check=True)

    made = tmp_path / "shoal" / "api" / name
    assert made.read_text() == (SRC / "shoal" / "api" / name).read_text()


def test_every_call_has_an_answer() -> None:
    described = pb.DESCRIPTOR.services_by_name["Shoal"]

    names = [f"on_{snake(method.name)}" for method in described.methods]

    assert names
    assert all(callable(getattr(Service, name)) for name in names)
