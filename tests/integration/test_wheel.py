"""The wheel, as somebody has it who installed nothing else."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"[A-Za-z0-9._-]+")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it says it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run([*build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("shoal-*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    [site] = (folder / "env").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as inside:
        inside.extractall(site)
    [installed] = metadata.distributions(path=[str(site)])
    for needed in closure(installed.requires or ()):
        for top in top_level(needed):
            link = site / top.name
            if not link.exists():
                link.symlink_to(top)
    command = folder / "env" / "bin" / "shoal"
    command.write_text(
        f"#!{command.parent}/python\nfrom shoal.entry import main\nmain()\n"
    )
    command.chmod(0o755)
    return command.parent


def closure(requires: Iterable[str]) -> list[metadata.Distribution]:
    """Return all that is required, without extras, as this Python has it."""
    found: dict[str, metadata.Distribution] = {}
    todo = list(requires)
    while todo:
        line = todo.pop()
        name = NAME.match(line)
        assert name is not None, line
        if "extra ==" in line or name[0] in found:
            continue
        try:
            found[name[0]] = metadata.distribution(name[0])
        except metadata.PackageNotFoundError:
            assert ";" in line, f"{line} is not installed"  # For another system.
            continue
        todo += found[name[0]].requires or ()
    return list(found.values())


def top_level(needed: metadata.Distribution) -> set[Path]:
    """Return the files and folders of a distribution in site-packages."""
    parts = {path.parts[0] for path in needed.files or () if path.parts[0] != ".."}
    return {Path(str(needed.locate_file(part))) for part in parts}


@pytest.fixture
def pair(programs: Path, tmp_path: Path) -> Iterator[tuple[CliHome, CliHome]]:
    with homes(tmp_path) as make:
        both = make("a"), make("b")
        for home in both:
            home.env["PATH"] = f"{programs}:{home.env['PATH']}"
        yield both


def test_a_wheel_alone_is_a_node_that_others_can_join(
    pair: tuple[CliHome, CliHome], programs: Path
) -> None:
    first, second = pair
    without = subprocess.run(
        [programs / "python", "-c", "import libp2p"], check=False, capture_output=True
    )
    assert without.returncode, "it is not what a user of the wheel has"

    first.ok("up", "--background", "--port", "0")
    second.ok("join", first.json("invite")["invitation"], "--no-up")
    second.ok("up", "--background", "--port", "0")

    eventually(lambda: len(first.json("nodes")["nodes"]) == 2)
    all_cpus = str(os.cpu_count())  # So each node has room for one task.
    done = first("run", "--nodes", "2", "--cpu", all_cpus, "--", "true")
    assert done.code == 0, done
    ran = first.json("show")["job"]["nodes"]
    assert len(ran) == 2, ran
    assert "not installed: direct links only" in first("doctor").out
