"""Scripts that say in comments what they need."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_spec_flags import parsed

from shoal.errors import UsageError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.spec.submission import load_spec


def script(tmp_path: Path, text: str, *args: str) -> dict[str, Any]:
    file = tmp_path / "train.sh"
    file.write_text(text)
    return parsed(str(file), *args)


def test_a_script_says_what_it_needs(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SHOAL --gpus A100:2 --name 'two words'\n#SHOAL -e A=1\necho $A\n"
    )

    spec = script(tmp_path, text)

    assert spec["name"] == "two words"
    assert spec["resources"]["gpu"] == "A100:2"
    assert spec["env"] == {"A": "1"}
    assert spec["command"][:2] == ["/bin/bash", "-c"]
    assert spec["command"][2] == text


def test_flags_win_over_lines_of_the_script(tmp_path: Path) -> None:
    text = "#!/bin/sh\n#SHOAL --name a --cpu 2\ntrue\n"

    spec = script(tmp_path, text, "--name", "b")

    assert spec["name"] == "b"
    assert spec["resources"]["cpu"] == "2"


def test_a_script_without_a_name_is_called_after_its_file(tmp_path: Path) -> None:
    assert script(tmp_path, "#!/bin/sh\ntrue\n")["name"] == "train"


def test_braces_of_a_script_are_no_placeholders(tmp_path: Path) -> None:
    text = "#!/usr/bin/env python3\nx = 1\nprint(f'{x} {{x}} {x:>3}', {x})\n"
    spec = script(tmp_path, text)
    job = derive(load_spec(json.dumps(spec), "json"), JobId("j"), OwnerId("me"))
    [task] = job.tasks()

    assert task.work.argv == ("python3", "-c", text)


def test_lines_of_slurm_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """#!/bin/bash
#SBATCH --job-name=resnet -N 2-4
#SBATCH -c 4 --mem=16G --gres=gpu:a100:2
#SBATCH --time=1-02:30:00 --partition long
#SBATCH --array=0-9%2 --requeue
srun hostname
"""

    spec = script(tmp_path, text.replace("-N 2-4", ""))

    assert spec["name"] == "resnet"
    assert spec["resources"] == {"cpu": "4", "ram": "16GB", "gpu": "A100:2"}
    assert spec["time_limit"] == "1d2h30m"
    assert spec["array"] == 10
    assert "retry" not in spec, "a failed task of Slurm is not requeued"
    assert spec["command"][2].startswith("export SLURM_JOB_ID=$SHOAL_JOB_ID")
    assert "train.sh:4: --partition has no meaning here" in capsys.readouterr().err


def test_a_script_of_slurm_runs_where_there_is_no_slurm(tmp_path: Path) -> None:
    text = "#!/bin/sh\n#SBATCH -a 7,9\nsrun -n1 --mem=2G echo ${SLURM_ARRAY_TASK_ID}\n"
    spec = script(tmp_path, text)
    job = derive(load_spec(json.dumps(spec), "json"), JobId("j"), OwnerId("me"))

    done = [
        subprocess.run(
            task.work.argv,
            env={"SHOAL_TASK_INDEX": str(task.index), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for task in job.tasks()
    ]

    assert done == ["7\n", "9\n"]


@pytest.mark.parametrize(
    ("time", "limit"),
    [
        ("90", "1h30m"),
        ("2:30", "2m30s"),
        ("1:00:00", "1h"),
        ("1-2", "1d2h"),
        ("0-1:30", "1h30m"),
    ],
)
def test_times_of_slurm(tmp_path: Path, time: str, limit: str) -> None:
    spec = script(tmp_path, f"#!/bin/sh\n#SBATCH -t {time}\ntrue\n")

    assert spec["time_limit"] == limit


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#!/bin/sh\n#SBATCH --bogus=1\n", "train.sh:2: --bogus of #SBATCH is not"),
        ("#!/bin/sh\n#SBATCH gpus=1\n", "train.sh:2: 'gpus=1' is not an option"),
        ("#!/bin/sh\n#SBATCH -t\n", "train.sh:2: --time needs a value"),
        ("#!/bin/sh\n#SBATCH --gres=fpga:1\n", "train.sh:2: 'fpga:1' cannot be"),
        ("#!/bin/sh\n#SHOAL --bogus\n", "train.sh:2: No such option"),
        ("#!/bin/sh\n#SHOAL --name 'x\n", "train.sh:2: cannot read"),
        ("#SHOAL --gpus 2\ntrue\n", "train.sh does not say what runs it"),
        ("#!/usr/bin/awk -f\n", "train.sh is run by 'awk'"),
    ],
)
def test_what_a_script_gets_wrong_is_said_with_its_line(
    tmp_path: Path, text: str, what: str
) -> None:
    with pytest.raises(UsageError) as error:
        script(tmp_path, text)

    assert what in error.value.what


@pytest.mark.parametrize(
    ("lines", "is_apart"),
    [
        ("#SBATCH -N 2", True),
        ("#SBATCH --nodes=2-4", True),
        ("#SBATCH --ntasks=2", False),
        ("#SBATCH -N 2\n#SBATCH -n 8", False),
        ("#SBATCH -n 8\n#SBATCH -N 2", False),
    ],
)
def test_nodes_of_slurm_are_machines_and_its_tasks_are_not(
    tmp_path: Path, lines: str, is_apart: bool
) -> None:
    spec = script(tmp_path, f"#!/bin/sh\n{lines}\ntrue\n")

    assert spec.get("placement", {}).get("distinct_nodes", False) is is_apart
