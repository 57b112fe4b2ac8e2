"""What is asked of Slurm, and how its answers are read."""

import asyncio
from pathlib import Path

import pytest

from shoal.cli.slurm.install import install
from shoal.core.allocation.records import AllocationTerms
from shoal.errors import EngineError
from shoal.runtime.allocation.engines import EngineJob
from shoal.runtime.allocation.pilot_script import pilot_script
from shoal.runtime.allocation.slurm import Slurm, complaint, passes, program

TERMS = AllocationTerms(
    name="gpu", engine="slurm", arguments=("-p", "gpu"), time_limit_s=5_400.0
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A Slurm whose commands are scripts that note what they are told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name, text in {
        "sbatch": 'echo "$@" > $0.args; cat > $0.in; cat $0.err >&2; echo "17;main"; '
        "exit $(cat $0.code)",
        "squeue": 'printf "17|PENDING|shoal-x-gpu-1\\n18|RUNNING|shoal-x-gpu-2\\n'
        '19|COMPLETING|shoal-x-gpu-3\\n20|RUNNING|other\\n"',
        "scancel": "echo no such job >&2; exit 1",
    }.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    (folder / "sbatch.err").touch()
    (folder / "sbatch.code").write_text("0")
    return Slurm(tmp_path / "logs")


def test_a_script_goes_through_standard_input_and_options_as_they_are(
    slurm: Slurm, tmp_path: Path
) -> None:
    native = asyncio.run(slurm.submit(TERMS, "shoal-x-gpu-1", "secret"))

    options = (tmp_path / "bin" / "sbatch.args").read_text()
    assert native == "17"
    assert "secret" not in options
    assert (tmp_path / "bin" / "sbatch.in").read_text() == "secret"
    assert "--job-name=shoal-x-gpu-1 --time=90:00" in options
    assert "--export=HOME,PATH" in options
    assert options.endswith("-p gpu\n")


@pytest.mark.parametrize(
    ("said", "final"),
    [
        ("sbatch: error: invalid partition specified: gpuu\n", True),
        ("sbatch: error: Batch job submission failed: Invalid account\n", True),
        (
            "sbatch: error: Unable to contact slurm controller (connect failure)\n",
            False,
        ),
        ("slurm_load_jobs error: Socket timed out on send/recv operation\n", False),
    ],
)
def test_a_refusal_is_final_unless_it_may_pass(
    slurm: Slurm, tmp_path: Path, said: str, final: bool
) -> None:
    (tmp_path / "bin" / "sbatch.err").write_text(said)
    (tmp_path / "bin" / "sbatch.code").write_text("1")

    with pytest.raises(EngineError) as refused:
        asyncio.run(slurm.submit(TERMS, "n", "secret"))

    assert refused.value.final is final
    assert "sbatch: error" not in str(refused.value)
    assert asyncio.run(slurm.attempt(TERMS, "n", "")) == str(refused.value)


def test_jobs_are_those_of_the_name_that_have_not_ended(slurm: Slurm) -> None:
    assert asyncio.run(slurm.jobs("shoal-x-gpu-")) == [
        EngineJob("shoal-x-gpu-1", "17", running=False),
        EngineJob("shoal-x-gpu-2", "18", running=True),
    ]


def test_a_cancel_that_fails_says_so(slurm: Slurm) -> None:
    with pytest.raises(EngineError, match="no such job"):
        asyncio.run(slurm.cancel("17"))


def test_commands_that_lead_back_to_a_shoal_are_not_taken_for_slurms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "ours"
    monkeypatch.setenv("PATH", str(ours))
    install(ours, (), beside_slurm=True)

    with pytest.raises(EngineError, match="there is no sbatch here"):
        program("sbatch")


def test_complaints_are_told_in_one_line_and_once() -> None:
    err = (
        "sbatch: error: invalid partition specified: x\nallocation failure: Bad\nBad\n"
    )

    assert complaint(err) == "invalid partition specified: x; Bad"
    assert complaint("") == "it did not say why"
    assert not passes("Invalid user id")


def test_a_pilots_script_is_one_for_any_shell_and_leaves_no_home() -> None:
    script = pilot_script(TERMS, 3, "shoal1-abc")

    assert script.startswith("#!/bin/sh\n")
    assert "shoal1-abc\nEND\n" in script
    assert "--label pilot=gpu/3" in script
    assert "--strangers no" in script
    assert "left=$((5400 - 5 " in script
    assert 'rm -rf "$SHOAL_HOME"' in script
