import json
from pathlib import Path
from typing import Any

import click
import pytest

from shoal.api.job_ids import new_job_id
from shoal.cli.job_input.spec_flags import JobCommand, job_options, spec_of
from shoal.errors import UsageError


def parsed(*args: str) -> dict[str, Any]:
    """Return the spec that a command line describes."""
    found: list[str] = []

    @click.command(cls=JobCommand)
    @job_options
    def command(words: tuple[str, ...], config: str | None, **flags: Any) -> None:  # noqa: ANN401
        found.append(spec_of(words, config, flags))

    command.main(list(args), standalone_mode=False)
    spec: dict[str, Any] = json.loads(found[0])
    return spec


def test_what_follows_two_dashes_is_the_command_as_it_stands() -> None:
    spec = parsed("--name", "x", "--", "python", "-c", "print(1)", "--name", "--")

    assert spec["name"] == "x"
    assert spec["command"] == ["python", "-c", "print(1)", "--name", "--"]


def test_a_python_program_runs_with_its_folder_and_its_own_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("#!/usr/bin/env python\nimport os\n")

    spec = parsed("--name", "other.py", "--cpu", "2", "src/train.py", "--cpu", "3")
    away = parsed(str(tmp_path / "src" / "train.py"), "x")

    assert spec["command"] == ["python", "src/train.py", "--cpu", "3"]
    assert (spec["workdir"], spec["name"]) == (".", "other.py")
    assert spec["resources"]["cpu"] == "2"
    assert away["command"] == ["python", "train.py", "x"]
    assert (away["workdir"], away["name"]) == (str(tmp_path / "src"), "train")


def test_a_python_file_with_flags_in_comments_says_itself_what_it_is(
    tmp_path: Path,
) -> None:
    file = tmp_path / "train.py"
    file.write_text("#!/usr/bin/env python3\n#SHOAL --cpu 3\nprint(1)\n")

    spec = parsed(str(file), "--name", "n")

    assert spec["resources"]["cpu"] == "3"
    assert spec["command"][:2] == ["python3", "-c"]


@pytest.mark.parametrize("option", ["--lr", "-x", "--lr=3"])
def test_options_of_a_command_without_two_dashes_are_told_apart(option: str) -> None:
    with pytest.raises(UsageError) as raised:
        parsed("--name", "test", "sh", "train.sh", option)
    with pytest.raises(click.NoSuchOption):
        parsed("--name", "test", "--nmae", "x", "sh")

    assert f"-- sh train.sh {option}" in raised.value.hint


def test_a_module_that_a_command_runs_and_that_stays_here_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "tune.py").write_text("")

    parsed("--", "python3", "-m", "mypackage.train")
    parsed("--", "python", "-m", "tune")
    said = capsys.readouterr().err
    parsed("--", "python", "-m", "http.server")
    parsed("--", "python", "-m")
    parsed("--workdir", ".", "--", "python", "-m", "tune")

    assert "mypackage/ is here" in said
    assert "tune.py is here" in said
    assert capsys.readouterr().err == ""


def test_a_file_that_a_command_names_and_that_stays_here_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    parsed("--", "python", "train.py")
    said = capsys.readouterr().err
    parsed("--workdir", ".", "--", "python", "train.py")
    parsed("--", "python", "-c", "1")
    parsed("--", "python", "-c", "x" * 5_000)

    assert "train.py is here, and the job runs elsewhere: add --workdir ." in said
    assert capsys.readouterr().err == ""


def test_a_number_for_an_array_is_how_many() -> None:
    counted = parsed("--array", "3", "--", "true")
    listed = parsed("--array", "0-2", "--", "true")

    assert counted["array"] == listed["array"]


def test_flags_change_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncommand: [echo, '{x}']\nparams: {x: 1}\n")

    spec = parsed(str(file), "--name", "b", "-p", "x=2")

    assert spec["name"] == "b"
    assert spec["params"] == {"x": 2}
    assert spec["command"] == ["echo", "{x}"]


def test_memory_with_a_unit_is_refused_with_both_meanings() -> None:
    with pytest.raises(UsageError) as error:
        parsed("--memory", "16GB", "--", "true")

    assert error.value.hint == (
        "--gpu-mem 16GB for GPU memory, --ram 16GB for main memory"
    )


def test_a_command_without_dashes_is_told_how_to_write_it() -> None:
    with pytest.raises(UsageError) as error:
        parsed("python", "train.py")

    assert error.value.hint.endswith("shoal run -- python train.py")


def test_a_file_and_a_config_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="both"):
        parsed("a.yaml", "--config", "b.json")


def test_nothing_at_all_is_nothing_to_run() -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        parsed()


def test_ids_are_short_and_differ() -> None:
    ids = {new_job_id() for _ in range(1_000)}

    assert len(ids) > 990
    assert all(len(id_) == 6 for id_ in ids)


def test_what_runs_at_the_end_is_told_as_it_would_be_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "told.yaml"
    file.write_text("command: 'true'\non_end: {command: \"sh -c 'cat > x'\"}\n")

    parsed(str(file))

    assert "unconfined: sh -c 'cat > x'" in capsys.readouterr().err


def test_a_file_that_is_there_and_cannot_be_read_is_not_taken_for_mistyped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").mkdir()  # Whoever runs the tests may read every file.

    with pytest.raises(UsageError) as raised:
        parsed("train.py")

    assert "did you mean" not in raised.value.hint
    assert "can read" in raised.value.hint
