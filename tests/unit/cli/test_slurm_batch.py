"""What batch scripts of Slurm ask for, and what their tasks run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.slurm.batch import SHARED_VARIABLE, Submission, finished, read
from shoal.cli.slurm.dependencies import Dependency, outlook, parse
from shoal.cli.slurm.formats import file_name
from shoal.cli.slurm.ledger import BatchLedger
from shoal.errors import NotFoundError, UsageError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Task
from shoal.model.spec.submission import load_spec

TRAINING = """#!/bin/bash -l
#SBATCH --job-name=resnet        # what squeue shows
#SBATCH --account=vision-lab
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:a100:2
#SBATCH --mem-per-cpu=2G
#SBATCH --time=1-00:00:00
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --mail-type=END,FAIL

set -euo pipefail
module purge
module load cuda/12.1
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun python train.py --lr "$LR" --seed ${SEED:-0}
"""


def taken(
    tmp_path: Path, text: str, *words: str, env: dict[str, str] | None = None
) -> Submission:
    (tmp_path / "job.sh").write_text(text)
    return read([*words, "job.sh"], env or {"USER": "ann"}, tmp_path)


def spec_of(asked: Submission, number: int = 12) -> dict[str, Any]:
    asked.batch.number = number
    # What a job that waits has gone through.
    asked.batch.spec = json.loads(json.dumps(asked.batch.spec))
    return finished(asked.batch, Path("/home/ann/.shoal"), "python")


def tasks_of(spec: dict[str, Any]) -> list[Task]:
    spec = {**spec, "workdir": ""}
    spec.pop("on_end")
    job = derive(load_spec(json.dumps(spec), "json"), JobId("j"), OwnerId("me"))
    return list(job.tasks())


def outputs_of(spec: dict[str, Any], **env: str) -> list[str]:
    """Run the tasks of a spec here; return what each wrote."""
    return [
        subprocess.run(
            task.work.argv,
            env={
                "PATH": "/usr/bin:/bin",
                **task.work.env,
                "SHOAL_TASK_INDEX": str(task.index),
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for task in tasks_of(spec)
    ]


def test_a_script_for_a_cluster_is_a_job_of_the_same_size(tmp_path: Path) -> None:
    env = {"USER": "ann", "LR": "0.1", "AWS_SECRET": "x", "HOME": "/h"}

    asked = taken(tmp_path, TRAINING, "-t", "2:00:00", env=env)
    spec = spec_of(asked)

    assert spec["name"] == "resnet"
    assert spec["resources"] == {"cpu": "8", "ram": "16GB", "gpu": "A100:2"}
    assert spec["time_limit"] == "2h", "the command line wins"
    assert spec["network"]
    assert spec["workdir"] == str(tmp_path)
    assert spec["env"]["LR"] == "0.1", "the script names it"
    assert "AWS_SECRET" not in spec["env"]
    assert spec["env"]["SLURM_NTASKS"] == "2"
    assert spec["env"]["SLURM_JOB_ID"] == "12"
    assert spec["on_end"]["command"][-2:] == ["ended", "12"]
    assert asked.batch.output == "logs/%x-%j.out"
    assert any("--partition has no meaning" in note for note in asked.notes)
    assert any("job.sh:16: modules are those of" in note for note in asked.notes)


def test_an_array_gives_each_task_its_index_and_a_number_of_its_own(
    tmp_path: Path,
) -> None:
    text = "#!/bin/sh\n#SBATCH -a 3-7:2\necho $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID"
    asked = taken(tmp_path, f"{text} $SLURM_JOB_ID $SLURM_ARRAY_TASK_MAX $1\n")
    asked.batch.spec["args"] = ("{index} x",)

    assert asked.batch.count == 3
    assert outputs_of(spec_of(asked)) == [
        "12 3 12 7 {index} x\n",
        "12 5 13 7 {index} x\n",
        "12 7 14 7 {index} x\n",
    ]


def test_srun_starts_each_task_once_and_fails_as_the_last_that_failed(
    tmp_path: Path,
) -> None:
    text = """#!/bin/sh
#SBATCH -n 3
srun sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS' | sort | paste -sd ' '
srun -N 1 -n 1 -c2 --exclusive --cpu-bind=none echo one
srun --mpi pmix -n 2 echo two | wc -l
srun -o file echo no || echo refused
srun sh -c 'exit $SLURM_PROCID' || echo $?
scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l
"""

    [out] = outputs_of(spec_of(taken(tmp_path, text)))

    assert out.split("\n")[:3] == ["0/3 1/3 2/3", "one", "2"]
    assert "srun: -o is not supported" in out
    assert out.split("\n")[4:7] == ["refused", "2", "1"]


def test_a_node_of_a_gang_runs_its_share_of_the_tasks(tmp_path: Path) -> None:
    text = """#!/bin/bash
#SBATCH --nodes=2 --ntasks=4
srun sh -c 'echo $SLURM_PROCID'; srun -N1 -n1 echo first
scontrol show hostnames
"""
    spec = spec_of(taken(tmp_path, text))

    assert (spec["nodes"], spec["placement"]["distinct_nodes"]) == (2, True)
    assert spec["resources"]["cpu"] == "2"
    second = outputs_of(spec, NODE_RANK="1", NODE_IPS="10.0.0.1\n10.0.0.2\n")[1]
    assert sorted(second.split()) == ["10.0.0.1", "10.0.0.2", "2", "3"]


def test_scripts_of_python_run_with_their_variables(tmp_path: Path) -> None:
    text = """#!/usr/bin/env python3
import os, sys
print(os.environ['SLURM_JOB_ID'], f'{sys.argv[1]}')
"""
    asked = taken(tmp_path, text)
    asked.batch.spec["args"] = ("{x}",)

    assert outputs_of(spec_of(asked)) == ["12 {x}\n"]


def test_in_a_shared_folder_output_is_written_as_the_script_runs(
    tmp_path: Path,
) -> None:
    tmp_path = tmp_path / "a {x} b'c"  # Such names are there, and must not be read.
    tmp_path.mkdir()
    env = {"USER": "ann", SHARED_VARIABLE: f"other=/nfs:work={tmp_path}"}
    text = "#!/bin/sh\n#SBATCH -o out/%A_%a.txt -a 1-2\npwd; echo e >&2\n"

    spec = spec_of(taken(tmp_path, text, env=env))
    told = outputs_of(spec)

    assert spec["mounts"] == ["work"]
    assert "workdir" not in spec
    assert told == [f"output: {tmp_path}/out/12_{n}.txt\n" for n in (1, 2)]
    assert (tmp_path / "out" / "12_2.txt").read_text() == f"{tmp_path}\ne\n"


@pytest.mark.parametrize(
    ("words", "ram"),
    [
        (["--mem=16GB"], "16GB"),
        (["--mem", "500"], "500MB"),
        (["--mem-per-cpu=2G", "-c4"], "8GB"),
        (["--mem-per-gpu=1024", "-G", "2"], "2GB"),
    ],
)
def test_memory_is_of_a_node(tmp_path: Path, words: list[str], ram: str) -> None:
    spec = spec_of(taken(tmp_path, "#!/bin/sh\n", *words))

    assert spec["resources"]["ram"] == ram


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("NONE", set[str]()),
        ("A", {"A"}),
        ("NONE,B=2", {"B"}),
        ("ALL", {"A", "LR"}),
        ("ALL,B=2", {"A", "LR", "B"}),
    ],
)
def test_export_says_which_variables_go_along(
    tmp_path: Path, given: str, names: set[str]
) -> None:
    env = {"A": "1", "LR": "2", "PATH": "/bin", "SSH_AUTH_SOCK": "/x", "USER": "ann"}

    asked = taken(tmp_path, "#!/bin/sh\necho $LR\n", f"--export={given}", env=env)

    found = {name for name in spec_of(asked)["env"] if not name.startswith("SLURM_")}
    assert found == names


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--hold"], "--hold of #SBATCH is not supported"),
        (["--frobnicate=1"], "--frobnicate of #SBATCH is not"),
        (["-Z"], "-Z of #SBATCH is not"),
        (["--mem=0"], "'0' is no amount of memory"),
        (["--gres=fpga:1"], "'fpga:1' cannot be requested"),
        (["-n", "0"], "--ntasks 0 is not a positive number"),
        (["-N2", "-a1-3"], "an array cannot have several nodes"),
        (["-a", "5-1"], "range 5-1 of an array is empty"),
        (["--wrap", "true"], "--wrap and the script job.sh contradict"),
        (["-o", "%q.out"], "'%q' in %q.out stands for nothing"),
    ],
)
def test_what_is_not_heeded_is_refused(
    tmp_path: Path, words: list[str], what: str
) -> None:
    with pytest.raises(UsageError) as error:
        taken(tmp_path, "#!/bin/sh\n", *words)

    assert what in error.value.what
    assert error.value.because or error.value.hint


def test_names_of_output_files_are_those_of_slurm() -> None:
    batch = read(["-J", "a b", "--wrap", "true"], {"USER": "u"}, Path("/x")).batch
    batch.number = 7

    name = file_name("%x-%4j_%A.%a_%u%%%N", batch, "3", "heron")

    assert name == "a b-0007_7.3_u%heron"


def test_numbers_are_never_given_twice_and_name_tasks_too(tmp_path: Path) -> None:
    ledger = BatchLedger(tmp_path)
    first = ledger.add(read(["-a", "0-9", "--wrap", "x"], {}, Path("/x")).batch)
    second = BatchLedger(tmp_path).add(read(["--wrap", "x"], {}, Path("/x")).batch)

    assert (first.number, second.number) == (1, 11)
    assert ledger.get(10).job == first.job
    assert ledger.get(11).job == second.job
    for number in (0, 12, 10**30):
        with pytest.raises(NotFoundError, match="no batch job"):
            ledger.get(number)


def test_a_dependency_is_met_never_met_or_open() -> None:
    states = {1: "done", 2: "failed", 3: "", 4: "cancelled"}

    def outlook_of(text: str) -> str:
        return outlook(parse(text), lambda each: states[each.number])

    assert parse("afterok:1_3") == [Dependency("afterok", 1, 3)]
    assert outlook_of("afterok:1") == "met"
    assert outlook_of("afterany:1:2:4") == "met"
    assert outlook_of("afternotok:2,afterok:1") == "met"
    assert outlook_of("afterok:1:3") == "open"
    assert outlook_of("afterok:4:3") == "never"
    assert outlook_of("afternotok:1") == "never"
    for text in ("after:1", "singleton", "afterok", "afterok:x", "afterok:1?afterok:2"):
        with pytest.raises(UsageError, match="--dependency="):
            parse(text)
