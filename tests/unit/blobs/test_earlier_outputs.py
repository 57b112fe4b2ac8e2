import subprocess
from pathlib import Path

import pytest
from tests.unit.blobs.test_packing import fill

from shoal.blobs.packing import Naming, pack_workdir


def sent(root: Path, *outputs: str) -> list[str]:
    packed = pack_workdir(root, Naming().name, outputs=outputs)
    return sorted(
        f"{e.path}/" if e.kind == "folder" else e.path for e in packed.entries
    )


@pytest.mark.parametrize(
    ("outputs", "left"),
    [
        ((), ["a.py", "base.pt", "model.bin", "out/7k/a", "out/b"]),
        (("out/",), ["a.py", "base.pt", "model.bin", "out/"]),
        (("./out", "model.bin"), ["a.py", "base.pt", "out/"]),
        (("out/*",), ["a.py", "base.pt", "model.bin", "out/"]),
        (("out/", "!out/b"), ["a.py", "base.pt", "model.bin", "out/", "out/b"]),
        # These do not say where the job writes: they could mean its code.
        (("*.pt", "**/b", "*"), ["a.py", "base.pt", "model.bin", "out/7k/a", "out/b"]),
    ],
)
def test_outputs_of_earlier_runs_stay_at_home(
    outputs: tuple[str, ...], left: list[str], tmp_path: Path
) -> None:
    fill(tmp_path, "a.py", "base.pt", "model.bin", "out/7k/a", "out/b")

    assert sent(tmp_path, *outputs) == left


def test_what_git_tracks_or_a_line_takes_back_travels(tmp_path: Path) -> None:
    fill(tmp_path, "data/raw.csv", "data/made.csv", "out/base.pt", "out/old.pt")
    (tmp_path / ".shoalignore").write_text("!out/base.pt\n")
    for words in (("init", "-q"), ("add", "data/raw.csv")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)

    found = sent(tmp_path, "data/", "out/")

    assert [path for path in found if not path.endswith("/")] == [
        ".shoalignore",
        "data/raw.csv",
        "out/base.pt",
    ]


def test_what_is_left_out_is_said_with_its_size_and_a_remedy(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "out/one", "out/deep/two")
    (tmp_path / "out" / "big").write_bytes(bytes(1_500_000))

    [note] = pack_workdir(tmp_path, Naming().name, outputs=["out/"]).notes

    assert note == (
        "left out: 3 files (1.5 MB) of out/, an output that this job makes itself; a "
        "line !out/ in .shoalignore sends what is there"
    )
