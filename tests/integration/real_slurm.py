"""A real Slurm on this machine: a controller and virtual nodes of their own.

Everything of it is in one folder, on ports that were free, with a munge of its own.
Each virtual node is one `slurmd`, which thinks that it is a machine of that name
(`NodeHostname`). Nothing of the system's own Slurm, if there is one, is touched.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "munged")
MEMORY_MB = 2_000
CPUS = 2
NODES = 3
HOST = "slurmtest"
AS_HOST = ("unshare", "--uts", "sh", "-c", f'hostname {HOST} && exec "$@"', "sh")
"""A controller wants to be the machine that its configuration names."""

FAKE_GPUS = ("/dev/null", "/dev/zero")  # Slurm wants devices, whatever they are.

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
ReturnToService=2
KillWait=20
MinJobAge=5
SlurmdTimeout=300
DefMemPerCPU=900
MpiDefault=none
{nodes}
PartitionName=main Nodes=ALL Default=YES PriorityTier=1
PartitionName=gpu Nodes=ALL PriorityTier=1
PartitionName=first Nodes=ALL PriorityTier=10
PartitionName=private Nodes=ALL DisableRootJobs=YES
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
    "CPUs={cpus} RealMemory={memory} Gres=gpu:2 State=UNKNOWN"
)


def missing() -> str:
    """Return why there can be no real Slurm here; empty if there can."""
    if os.geteuid() != 0:
        return "a Slurm of our own is started as root"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    lacking = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (slurmctld slurmd munge)"
    return ""


class RealSlurm:
    """A running Slurm; `env` is what its commands need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self._munge()
        ctld, *ports = free_ports(NODES + 1)
        names = [f"v{number}" for number in range(NODES)]
        nodes = "\n".join(
            NODE.format(name=name, host=HOST, port=port, cpus=CPUS, memory=MEMORY_MB)
            for name, port in zip(names, ports, strict=True)
        )
        text = CONFIG.format(host=HOST, ctld=ctld, folder=self.folder, nodes=nodes)
        (self.folder / "slurm.conf").write_text(text)
        gpus = "".join(f"Name=gpu File={each}\n" for each in FAKE_GPUS)
        (self.folder / "gres.conf").write_text(gpus)
        self._spawn("slurmctld", "-D")
        for name in names:
            (self.folder / "spool" / name).mkdir()
            self._spawn("slurmd", "-D", "-N", name)
        self._wait(lambda: self.states() == ["idle"] * NODES, "idle nodes")

    def _munge(self) -> None:
        """Start a munge of our own, with a key that nobody else has."""
        user = pwd.getpwuid(os.geteuid()).pw_name
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        self.folder.chmod(0o755)
        files = {
            "socket": "munge.socket",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
            "seed-file": "munge.seed",
        }
        paths = [f"--{what}={self.folder / name}" for what, name in files.items()]
        self._spawn("munged", "-F", "--force", f"--key-file={key}", *paths)
        self._wait((self.folder / "munge.socket").exists, f"munge of {user}")

    def run(self, *argv: str) -> str:
        """Run a command of Slurm; return what it prints."""
        env = {**os.environ, **self.env}
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, check=False, timeout=30
        )
        assert done.returncode == 0, (argv, done.stderr)
        return done.stdout

    def states(self) -> list[str]:
        with contextlib.suppress(AssertionError):
            return self.run("sinfo", "-hN", "-p", "main", "-o", "%T").split()
        return []

    def jobs(self) -> list[str]:
        """Return `id state name` of all jobs that have not ended."""
        lines = self.run("squeue", "-h", "-o", "%i %T %j").splitlines()
        return [line for line in lines if "COMPLETING" not in line]

    def stop(self) -> None:
        with contextlib.suppress(AssertionError):
            self.run("scancel", "--state=PENDING", "--user=root")
            self.run("scancel", "--signal=KILL", "--full", "--user=root")
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
                continue
            process.kill()
            process.wait()
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[int]:
        """Return processes of this Slurm that outlive it: keepers of its jobs."""
        mark, found = f"SLURM_CONF={self.folder}/".encode(), list[int]()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes() and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
        return found

    def _spawn(self, name: str, *argv: str) -> None:
        log = self.folder / f"{name}-{len(self._processes)}.out"
        env = {**os.environ, **self.env}
        program = shutil.which(name, path=self.env["PATH"])
        assert program is not None
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [*AS_HOST, program, *argv], env=env, stdout=out, stderr=out
                )
            )

    def _wait(self, holds: object, what: str, seconds: float = 30.0) -> None:
        assert callable(holds)
        until = time.monotonic() + seconds
        while not holds():
            for process in self._processes:
                assert process.poll() is None, (process.args, self.logs())
            assert time.monotonic() < until, f"no {what}: {self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        found = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in found)


@contextlib.contextmanager
def real_slurm(folder: Path) -> Iterator[RealSlurm]:
    """Run a Slurm in a folder."""
    slurm = RealSlurm(folder)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]
