"""Files of an environment, read where a job is submitted."""

from pathlib import Path

import pytest

from shoal.api.client.environment_files import read_project, read_requirements
from shoal.errors import UsageError


def test_files_that_a_file_includes_are_put_into_one(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "r.txt").write_text(
        "# all\nnumpy  # fast\n-r more/x.txt\n-c c.txt\n--extra-index-url https://x\n"
    )
    (tmp_path / "more" / "x.txt").write_text("torch==2 \\\n  --hash=sha256:aa\n")
    (tmp_path / "c.txt").write_text("numpy<3\n")

    assert read_requirements(tmp_path / "r.txt") == {
        "requirements.txt": b"numpy\ntorch==2    --hash=sha256:aa\n"
        b"--extra-index-url https://x\n",
        "constraints.txt": b"numpy<3\n",
    }


@pytest.mark.parametrize(
    "line",
    ["-e .", "./pkg", "../pkg", "/abs/x.whl", "x @ file:///a", "-f wheels", "."],
)
def test_what_only_this_machine_has_is_refused_with_its_line(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "r.txt").write_text(f"numpy\n{line}\n")

    with pytest.raises(UsageError, match="line 2"):
        read_requirements(tmp_path / "r.txt")


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("-r r.txt\n")

    with pytest.raises(UsageError, match="deep"):
        read_requirements(tmp_path / "r.txt")


def test_a_project_travels_with_its_lock(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "uv.lock").write_text("version = 1\n")

    assert set(read_project(tmp_path)) == {"pyproject.toml", "uv.lock"}


def test_a_typo_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*requirments"):
        read_requirements(tmp_path / "requirments.txt")
