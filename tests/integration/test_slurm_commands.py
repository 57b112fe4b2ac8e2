"""sbatch, squeue, scancel and sinfo of a shoal, as scripts of strangers use them."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration

WAIT_S = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """Lend a folder that tasks see at its own path: they have a /tmp of their own."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="shoal-shared-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("slurm")) as make:
        home = make("home")
        home.env["USER"] = "ann"
        home.up("--share", f"work={shared}:rw:here")
        yield home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.txt").write_text("data\n")
    return tmp_path


def sbatch(home: CliHome, folder: Path, *words: str) -> int:
    """Submit as from a folder; return the number."""
    told = home.ok("slurm", "sbatch", "-D", str(folder), "--parsable", *words)
    return int(told)


def queue(home: CliHome, *words: str) -> list[str]:
    return home.ok("slurm", "squeue", "-h", *words).splitlines()


def read_when_there(path: Path) -> str:
    eventually(path.exists, WAIT_S)
    eventually(lambda: path.stat().st_size > 0, WAIT_S)
    return path.read_text()


PREPARE = """#!/bin/bash
#SBATCH --job-name=prepare
#SBATCH --ntasks=1 --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --mem=200M
#SBATCH --output=%x.%j.log
#SHOAL --output prepared/

set -euo pipefail
cd "$SLURM_SUBMIT_DIR" 2>/dev/null || true   # many scripts do that
mkdir -p prepared && tr a-z A-Z < data.txt > prepared/upper.txt
echo "prepared by $SLURM_JOB_NAME on $(nproc) CPU"
"""

TRAIN = """#!/bin/bash -l
#SBATCH -J train
#SBATCH -a 1-3%2
#SBATCH -o train-%a.log
#SBATCH -p gpu,long

module load anaconda3 && source activate torch 2>/dev/null
LINE=$(sed -n 1p prepared/upper.txt)
[ "$SLURM_ARRAY_TASK_ID" -eq 2 ] && exit 7
srun --ntasks=1 sh -c "echo $LINE $SLURM_ARRAY_TASK_ID \\$SLURM_PROCID"
"""


def test_a_pipeline_of_batch_jobs_hands_on_its_files_and_its_failures(
    home: CliHome, folder: Path
) -> None:
    (folder / "prepare.sh").write_text(PREPARE)
    (folder / "train.sh").write_text(TRAIN)

    first = sbatch(home, folder, str(folder / "prepare.sh"))
    after = ("-d", f"afterok:{first}")
    second = sbatch(home, folder, *after, str(folder / "train.sh"))
    wrap = ("--wrap", "echo all is well")
    third = sbatch(home, folder, "-d", f"afterok:{second}", *wrap)
    told = ("--wrap", "cat train-1.log; exit 4", "-W", "-o", "told.txt")
    failed = home(
        *("slurm", "sbatch", "-D", str(folder), "-d", f"afternotok:{second}", *told)
    )

    assert failed.code == 4, "--wait exits with the code of the job"
    assert failed.out == f"Submitted batch job {third + 1}\n"
    log = (folder / f"prepare.{first}.log").read_text()
    assert log.startswith("prepared by prepare on")
    assert (folder / "prepared" / "upper.txt").read_text() == "DATA\n"
    assert "DATA 1 0\n" in (folder / "train-1.log").read_text()
    assert "anaconda3: this node has no environment modules" in (
        (folder / "told.txt").read_text()
    )
    fields = queue(home, "-t", "all", "-j", f"{second},{third}", "-o", "%i %T %r")
    assert fields == [
        f"{second}_1 COMPLETED None",
        f"{second}_2 FAILED None",
        f"{second}_3 COMPLETED None",
        f"{third} PENDING DependencyNeverSatisfied",
    ]
    home.ok("slurm", "scancel", str(third))
    assert queue(home, "-j", str(third)) == []


def test_one_task_of_an_array_is_cancelled_and_the_others_go_on(
    home: CliHome, folder: Path
) -> None:
    number = sbatch(home, folder, "-a", "5-7", "--wrap", "sleep 600")
    eventually(lambda: len(queue(home, "-t", "R", "-j", str(number))) > 0, WAIT_S)

    home.ok("slurm", "scancel", f"{number}_6")
    home.ok("slurm", "scancel", str(number + 2))  # 7, by its own number

    states = queue(home, "-r", "-t", "all", "-j", str(number), "-o", "%K %t %A")
    assert states[1:] == [f"6 CA {number + 1}", f"7 CA {number + 2}"]
    assert states[0].split()[1] in ("PD", "R")
    home.ok("slurm", "scancel", "--me")
    assert queue(home) == []


def test_a_job_in_a_shared_folder_runs_there_at_the_same_path(
    home: CliHome, folder: Path, shared: Path
) -> None:
    bin_ = folder / "bin"
    home.ok(
        "slurm", "install", "--beside-slurm", "--shared", f"work={shared}", str(bin_)
    )
    work = shared / "ab" / "cdef"
    work.mkdir(parents=True)
    for each in (work, work.parent):
        each.chmod(0o777)
    # Written and called the way Nextflow's executor for Slurm does it.
    (work / ".command.run").write_text(
        "#!/bin/bash\n#SBATCH -J nf-align_(1)\n#SBATCH -o .command.log\n"
        "#SBATCH --no-requeue\n#SBATCH --signal B:USR2@30\n#SBATCH -c 1\n"
        "#SBATCH -t 01:00:00\n#SBATCH --mem 200M\nNXF_CHDIR="
        f'{work}\ncd "$NXF_CHDIR"\nset +e\nbash -ue {work}/.command.sh\n'
        f"ret=$?\nprintf -- $ret > {work}/.exitcode\nexit $ret\n"
    )
    (work / ".command.sh").write_text("echo hi; pwd; exit 5\n")
    env = {**home.env, "PATH": f"{bin_}:{home.env['PATH']}"}

    done = subprocess.run(
        ["sbatch", ".command.run"],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    number = done.stdout.removeprefix("Submitted batch job ").strip()
    assert read_when_there(work / ".exitcode") == "5"
    assert read_when_there(work / ".command.log") == f"hi\n{work}\n"
    eventually(
        lambda: (
            queue(home, "-o", "%i %t", "-t", "all", "-u", "ann")[-1:] == [f"{number} F"]
        ),
        WAIT_S,
    )


def test_numbers_outlive_the_node_and_what_waits_goes_on(
    home: CliHome, folder: Path
) -> None:
    first = sbatch(home, folder, "--wrap", "while [ ! -e x ]; do sleep 0.05; done")
    second = sbatch(home, folder, "-d", f"afterany:{first}", "--wrap", "echo second")
    eventually(lambda: queue(home, "-t", "R", "-j", str(first)) != [], WAIT_S)
    home.kill()
    home.up()

    waiting = queue(home, "-j", f"{first},{second}", "-o", "%i")
    home.ok("slurm", "scancel", str(first))

    assert waiting == [str(first), str(second)]
    assert read_when_there(folder / f"slurm-{second}.out") == "second\n"
    assert sbatch(home, folder, "--wrap", "true") == second + 1


def test_the_pool_is_told_in_words_of_slurm(home: CliHome) -> None:
    name = home.info["petname"]

    plain = home.ok("slurm", "sinfo").splitlines()
    one = home.ok("slurm", "sinfo", "-N", "-h", "-o", "%N %t %c %P").split()

    assert plain[0].split() == [
        *("PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST")
    ]
    assert plain[1].split()[:4] == ["shoal*", "up", "infinite", "1"]
    assert (one[0], one[3]) == (name, "shoal*")


@pytest.mark.parametrize(
    ("words", "what", "code"),
    [
        (("scancel",), "no job was named", 2),
        (("scancel", "9999"), "there is no batch job 9999", 102),
        (("squeue", "-j", "9999"), "there is no batch job 9999", 102),
        (("squeue", "--start"), "--start is not supported", 2),
        (("squeue", "-o", "%y"), "%y is not known", 2),
        (("squeue", "-t", "FOO"), "'FOO' is no state", 2),
        (("sinfo", "-s"), "-s is not supported", 2),
        (("sbatch", "-d", "afterok:9999", "--wrap", "x"), "no batch job 9999", 102),
        (("sbatch", "--begin=now", "--wrap", "x"), "--begin of #SBATCH", 2),
        (("sbatch", "none.sh"), "cannot read none.sh", 2),
    ],
)
def test_mistakes_are_told_and_change_nothing(
    home: CliHome, words: tuple[str, ...], what: str, code: int
) -> None:
    done = home("slurm", *words)

    assert done.code == code
    assert what in done.err
    assert "next:" in done.err
    assert done.out == ""


def test_a_real_slurm_is_not_hidden_by_accident(home: CliHome, tmp_path: Path) -> None:
    real = tmp_path / "slurm"
    real.mkdir()
    (real / "sbatch").write_text("#!/bin/sh\necho real\n")
    (real / "sbatch").chmod(0o755)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "squeue").write_text("mine")
    plain = {**home.env, "PATH": f"{Path(sys.executable).parent}:/nowhere"}
    beside = {**plain, "PATH": f"{plain['PATH']}:{real}"}

    def install(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        command = ["shoal", "slurm", "install", *words]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=False
        )

    refused = install(beside, str(tmp_path / "bin"))
    taken = install(plain, str(tmp_path / "mine"))
    made = install(beside, "--beside-slurm", str(tmp_path / "bin"))

    assert f"there is a Slurm here: {real}/sbatch" in refused.stderr
    assert "squeue is not of shoal" in taken.stderr
    assert (tmp_path / "mine" / "squeue").read_text() == "mine"
    assert made.returncode == 0
    assert len(list((tmp_path / "bin").iterdir())) == 4
