"""Compare shoal with its peers: the same work, on the same machine, in one run.

Run: python benchmarks/peers.py [--rounds 3] [--only shoal ray] [--write]

Installs Ray, Dask, Parsl and HyperQueue, each into an environment that is thrown away
(`--envs DIR` keeps them), and runs the same work on each of them and on shoal, one
after the other, round by round, so that whatever else this machine does disturbs all.
Each system is warmed up first and gets batches of one size. Ray runs without its
dashboard. CPU is that of all processes of a system, its client and its tasks together.

Prints one JSON line per system and round, with the load of the machine before it, and
then one per figure: the median, and the figures of all rounds. `--write` puts the table
and the picture into docs/benchmarks.md. A peer that cannot be installed or does not
finish is left out, and that is said. Compare figures of one run only, and as ratios.
"""

# ruff: noqa: ANN001, ANN201, PLC0415 - Peers are there only in their environments, and
# have no types that ours could check.

# The systems are installed one by one.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKERS = 2
CALLS = 10_000
SINGLE_CALLS = 500
PROCESSES = 2_000
SINGLE_PROCESSES = 100
WARM_CALLS, WARM_PROCESSES = 200, 20
PART_S = 8.0
"""A slow system gets fewer tasks, so that each part ends in about this time."""

RUN_TIMEOUT_S = 240
INSTALL_TIMEOUT_S = 900
MARK = "SHOAL_PEERS_RUN"
PEERS = {
    "shoal": "",
    "shoal, no sandbox": "",
    "shoal, two nodes": "",
    "ray": "ray",
    "ray, two nodes": "ray",
    "dask": "distributed",
    "parsl": "parsl",
    "hyperqueue": "hyperqueue",
    "limit: multiprocessing": "",
    "limit: posix_spawn": "",
}


# What is measured. The same functions run on every system.


def nothing(x):
    """Return what it got: the least that a task can do."""
    return x


def true(_):
    """Start a process and wait for its end, in the way that costs least."""
    pid = os.posix_spawn("/bin/true", ["/bin/true"], {}, setsid=True)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def percentile(times_s: list[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    ordered = sorted(times_s)
    return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(many, one, calls: int, singles: int, name: str) -> dict[str, float]:
    """Time `many(n)` calls at once, and `one()` call after the other."""
    probe = min(calls, WARM_CALLS if name == "function" else WARM_PROCESSES)
    many(probe)  # Warm: what starts lazily has started.
    began = time.perf_counter()
    many(probe)
    per_call_s = (time.perf_counter() - began) / probe
    calls = max(probe, min(calls, int(PART_S / per_call_s)))
    spent_s, began = cpu_s(), time.perf_counter()
    many(calls)
    rate = calls / (time.perf_counter() - began)
    cpu_ms = 1e3 * (cpu_s() - spent_s) / calls
    times: list[float] = []
    ends_at = time.perf_counter() + PART_S
    for _ in range(singles):
        if time.perf_counter() > ends_at:
            break
        began = time.perf_counter()
        one()
        times.append(time.perf_counter() - began)
    found = {f"{name}_per_s": rate, f"{name}_cpu_ms": cpu_ms}
    if times:
        found[f"{name}_p50_ms"] = percentile(times, 0.5)
        found[f"{name}_p99_ms"] = percentile(times, 0.99)
    return found


# The systems. Each runs in a process of its own, with its own Python.


def run_shoal(nodes: int = 1, *, sandbox: bool = True) -> dict[str, float]:
    """Measure shoal: a node or two, as `shoal up` makes them, and a client."""
    import shoal

    options = ["--background", "--quiet", "--port", "0"]
    options += [] if sandbox else ["--no-sandbox"]
    with tempfile.TemporaryDirectory(prefix="shoal-peers-") as folder:
        homes = [Path(folder) / str(number) for number in range(nodes)]
        began = time.perf_counter()
        os.environ["SHOAL_HOME"] = str(homes[0])
        _shoal(homes[0], "up", *options)
        ready_s = time.perf_counter() - began
        try:
            for home in homes[1:]:
                text = _shoal(homes[0], "invite", "--quiet").strip()
                _shoal(home, "join", text)
                _shoal(home, "up", *options)
            found = {"ready_s": ready_s, **_measure_shoal(shoal, nodes)}
        finally:
            for home in homes:
                _shoal(home, "down", "--quiet")
    return found


def _measure_shoal(shoal, nodes: int) -> dict[str, float]:
    # With two nodes on one machine, an interpreter takes all of a node: one on each.
    cpus = len(os.sched_getaffinity(0))
    options = {"lanes": WORKERS, "cpu": 0.5 if nodes == 1 else cpus}
    with shoal.Client(start=False, **options) as client:
        deadline = time.monotonic() + 30
        while client.lanes < WORKERS and time.monotonic() < deadline:
            list(client.map(nothing, range(100), chunksize=1))

        def many(count: int) -> None:
            futures = [client.submit(nothing, n) for n in range(count)]
            assert [future.result() for future in futures] == list(range(count))

        def one() -> None:
            client.submit(nothing, 1).result()

        found = measure(many, one, CALLS, SINGLE_CALLS, "function")
        found["lanes"] = client.lanes
        found["memory_mb"] = memory_mb()
        if nodes > 1:
            return found
    with shoal.Client(start=False) as client:
        needs = {"cpu": 1}

        def jobs(count: int) -> None:
            spec = {"command": ["/bin/true"], "resources": needs, "array": count}
            client.submit(spec).result()

        found |= measure(jobs, lambda: jobs(1), PROCESSES, SINGLE_PROCESSES, "process")
    return found


def _shoal(home: Path, *args: str) -> str:
    env = {**os.environ, "SHOAL_HOME": str(home)}
    command = [sys.executable, "-m", "shoal.cli", *args]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return done.stdout


def run_ray(nodes: int = 1) -> dict[str, float]:
    """Measure Ray on one node, or on two nodes that share the workers."""
    import ray

    began = time.perf_counter()
    quiet = {"include_dashboard": False, "logging_level": "ERROR"}
    if nodes == 1:
        ray.init(num_cpus=WORKERS, **quiet)
        cluster = None
    else:
        from ray.cluster_utils import Cluster

        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False},
        )
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, logging_level="ERROR")
    empty = ray.remote(nothing)
    process = ray.remote(true)
    ray.get(empty.remote(1))
    ready_s = time.perf_counter() - began

    def many(count: int) -> None:
        assert ray.get([empty.remote(n) for n in range(count)]) == list(range(count))

    def one() -> None:
        ray.get(empty.remote(1))

    found = measure(many, one, CALLS, SINGLE_CALLS, "function")
    found |= {"ready_s": ready_s, "memory_mb": memory_mb()}
    if nodes == 1:
        found |= measure(
            lambda count: ray.get([process.remote(n) for n in range(count)]),
            lambda: ray.get(process.remote(1)),
            PROCESSES,
            SINGLE_PROCESSES,
            "process",
        )
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()
    return found


def run_dask() -> dict[str, float]:
    """Measure Dask: a local cluster of processes with a thread each."""
    from distributed import Client, LocalCluster

    began = time.perf_counter()
    cluster = LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
    )
    client = Client(cluster)
    client.submit(nothing, 1, pure=False).result()
    ready_s = time.perf_counter() - began

    def many(count: int, function=nothing) -> None:
        client.gather([client.submit(function, n, pure=False) for n in range(count)])

    def one(function=nothing) -> None:
        client.submit(function, 1, pure=False).result()

    found = measure(many, one, CALLS, SINGLE_CALLS, "function")
    found |= {"ready_s": ready_s, "memory_mb": memory_mb()}
    found |= measure(
        lambda count: many(count, true),
        lambda: one(true),
        PROCESSES,
        SINGLE_PROCESSES,
        "process",
    )
    client.close()
    cluster.close()
    return found


def run_parsl() -> dict[str, float]:
    """Measure Parsl with its high-throughput executor."""
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    began = time.perf_counter()
    folder = tempfile.mkdtemp(prefix="peers-parsl-")
    executor = HighThroughputExecutor(
        max_workers_per_node=WORKERS,
        address="127.0.0.1",
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    parsl.load(Config(executors=[executor], run_dir=folder))
    empty = parsl.python_app(nothing)
    process = parsl.python_app(true)
    empty(1).result()
    ready_s = time.perf_counter() - began

    def many(count: int, app=empty) -> None:
        for future in [app(n) for n in range(count)]:
            future.result()

    found = measure(many, lambda: empty(1).result(), CALLS, SINGLE_CALLS, "function")
    found |= {"ready_s": ready_s, "memory_mb": memory_mb()}
    found |= measure(
        lambda count: many(count, process),
        lambda: process(1).result(),
        PROCESSES,
        SINGLE_PROCESSES,
        "process",
    )
    parsl.dfk().cleanup()
    shutil.rmtree(folder, ignore_errors=True)
    return found


def run_hyperqueue() -> dict[str, float]:
    """Measure HyperQueue: it starts a process for each function, so few of them."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    began = time.perf_counter()
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=WORKERS))
        client = cluster.client()

        def functions(count: int) -> None:
            job = Job()
            for number in range(count):
                job.function(nothing, args=(number,))
            client.wait_for_jobs([client.submit(job)])

        def programs(count: int) -> None:
            job = Job()
            for _ in range(count):
                job.program(["/bin/true"])
            client.wait_for_jobs([client.submit(job)])

        programs(1)
        ready_s = time.perf_counter() - began
        found = measure(functions, lambda: None, 40, 0, "function")
        found |= measure(programs, lambda: programs(1), PROCESSES, 10, "process")
        return found | {"ready_s": ready_s, "memory_mb": memory_mb()}


def run_multiprocessing() -> dict[str, float]:
    """Measure what one machine can do without any system: a pool of processes."""
    import multiprocessing

    began = time.perf_counter()
    with multiprocessing.Pool(WORKERS) as pool:
        pool.apply(nothing, (1,))
        ready_s = time.perf_counter() - began

        def many(count: int, function=nothing) -> None:
            for result in [pool.apply_async(function, (n,)) for n in range(count)]:
                result.get()

        def one(function=nothing) -> None:
            pool.apply(function, (1,))

        found = measure(many, one, CALLS, SINGLE_CALLS, "function")
        found |= measure(
            lambda count: many(count, true),
            lambda: one(true),
            PROCESSES,
            SINGLE_PROCESSES,
            "process",
        )
        return found | {"ready_s": ready_s, "memory_mb": memory_mb()}


SPAWN_C = r"""
#define _GNU_SOURCE
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char *words[] = {"/bin/true", NULL}, *env[] = {NULL};
    posix_spawnattr_t apart;
    posix_spawnattr_init(&apart);
    posix_spawnattr_setflags(&apart, POSIX_SPAWN_SETSID);
    for (int loop = atoi(argv[1]); loop > 0; loop--) {
        if (fork()) continue;
        for (int left = atoi(argv[2]); left > 0; left--) {
            pid_t pid;
            if (posix_spawn(&pid, words[0], NULL, &apart, words, env)) _exit(1);
            if (waitpid(pid, NULL, 0) != pid) _exit(1);
        }
        _exit(0);
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}
"""


def run_posix_spawn() -> dict[str, float]:
    """Measure what one machine can do at all: loops that start processes and wait.

    They are in C if there is a compiler. One at a time is measured from Python.
    """
    Path("spawn.c").write_text(SPAWN_C, encoding="ascii")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler:
        subprocess.run([compiler, "-O2", "-o", "spawn", "spawn.c"], check=True)

    def in_c(count: int) -> None:
        each = str(count // WORKERS)
        subprocess.run([str(Path("spawn").resolve()), str(WORKERS), each], check=True)

    def in_python(count: int) -> None:
        loops: list[int] = []
        for _ in range(WORKERS):
            loop = os.fork()
            if loop == 0:
                for _ in range(count // WORKERS):
                    true(None)
                os._exit(0)
            loops.append(loop)
        for loop in loops:
            os.waitpid(loop, 0)

    many = in_c if compiler else in_python
    found = measure(many, lambda: true(1), PROCESSES, SINGLE_PROCESSES, "process")
    return found | {"ready_s": 0.0}


RUNS = {
    "shoal": run_shoal,
    "shoal, no sandbox": lambda: run_shoal(sandbox=False),
    "shoal, two nodes": lambda: run_shoal(2),
    "ray": run_ray,
    "ray, two nodes": lambda: run_ray(2),
    "dask": run_dask,
    "parsl": run_parsl,
    "hyperqueue": run_hyperqueue,
    "limit: multiprocessing": run_multiprocessing,
    "limit: posix_spawn": run_posix_spawn,
}


# Processes that carry our mark, and those below them.


def marked() -> dict[int, int]:
    """Return the processes of this run but us, each with its parent."""
    mark = os.environ.get(MARK, "")
    parents: dict[int, int] = {}
    ours: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            parents[pid] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
            if mark and mark.encode() in (entry / "environ").read_bytes():
                ours.add(pid)
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= below
        grown = bool(below)
    ours.discard(os.getpid())
    return {pid: parents[pid] for pid in ours if pid in parents}


def memory_mb() -> float:
    """Return the resident memory of all processes of the system but its client."""
    total = 0
    for pid in marked():
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
            total += int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total / 1e6


def cpu_s() -> float:
    """Return the processor time of us, of the system, and of all that they reaped."""
    ticks = 0
    for pid in (os.getpid(), *marked()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def end_marked() -> None:
    """Kill what a run left behind."""
    for pid in marked():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


# Installing, running, telling.


def installed(package: str, envs: Path) -> Path | str:
    """Return the Python of an environment that has a package, or why there is none."""
    if not package:
        return Path(sys.executable)
    python = envs / package / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(envs / package)], check=True)
    try:
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", package],
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"pip took more than {INSTALL_TIMEOUT_S} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return python if done.returncode == 0 else (lines or ["pip failed"])[-1]


def size_of(python: Path, package: str) -> dict[str, float]:
    """Return how much an environment with only this package holds."""
    code = (
        "import importlib.metadata as m, json, sysconfig;"
        "print(json.dumps([sysconfig.get_path('purelib'),"
        "len({d.metadata['Name'].lower() for d in m.distributions()}"
        "-{'pip','setuptools'})]))"
    )
    if not package:
        return {}
    told = subprocess.run([str(python), "-c", code], capture_output=True, check=True)
    folder, packages = json.loads(told.stdout)
    files = (p for p in Path(folder).rglob("*") if p.is_file() and not p.is_symlink())
    own = (
        p for p in files if p.relative_to(folder).parts[0] not in ("pip", "setuptools")
    )
    return {
        "install_mb": sum(p.stat().st_size for p in own) / 1e6,
        "packages": packages,
    }


def run_one(name: str, python: Path) -> dict[str, float] | str:
    """Run one system once, in a process of its own; return figures, or what failed."""
    mark = f"{MARK}={uuid.uuid4().hex}"
    os.environ[MARK] = mark
    path = f"{python.parent}:{os.environ['PATH']}"  # Some start programs of their own.
    env = {**os.environ, MARK: mark, "PATH": path, "PYTHONWARNINGS": "ignore"}
    command = [str(python), str(HERE / "peers.py"), "--one", name]
    try:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            tempfile.TemporaryFile("w+") as out,  # Files: daemons that a system
            tempfile.TemporaryFile("w+") as err,  # leaves behind keep pipes open.
        ):
            code = subprocess.run(
                command,
                env=env,
                cwd=folder,
                stdout=out,
                stderr=err,
                timeout=RUN_TIMEOUT_S,
                check=False,
            ).returncode
            out.seek(0)
            err.seek(0)
            lines = [line for line in out if line.startswith("{")]
            if code or not lines:
                said = [line.strip() for line in err if line.strip()]
                return (said or [f"exit code {code}"])[-1][:200]
            found: dict[str, float] = json.loads(lines[-1])
            return found
    except subprocess.TimeoutExpired:
        return f"it took more than {RUN_TIMEOUT_S} s"
    finally:
        end_marked()
        del os.environ[MARK]


def compare(args: argparse.Namespace, envs: Path) -> tuple[dict, dict, int]:
    """Run everything, interleaved; return figures, what was left out, and rounds."""
    if unknown := set(args.only or ()) - set(PEERS):
        sys.exit(f"no such system: {sorted(unknown)}; there are {list(PEERS)}")
    names = [name for name in PEERS if not args.only or name in args.only]
    pythons: dict[str, Path] = {}
    left_out: dict[str, str] = {}
    figures: dict[str, dict[str, list[float]]] = {}
    for name in names:
        found = installed(PEERS[name], envs)
        if isinstance(found, str):
            left_out[name] = f"cannot be installed: {found}"
            continue
        pythons[name] = found
        figures[name] = {k: [v] for k, v in size_of(found, PEERS[name]).items()}
    ends_at = time.monotonic() + 60 * args.minutes
    for number in range(args.rounds):
        for name, python in pythons.items():
            if name in left_out or time.monotonic() > ends_at:
                continue
            load = os.getloadavg()[0]
            result = run_one(name, python)
            said = result if isinstance(result, str) else "done"
            print(f"round {number + 1}: {name}: {said}", file=sys.stderr, flush=True)
            if isinstance(result, str):
                if number == 0:
                    left_out[name] = f"failed: {result}"
                continue
            result["load"] = load
            emit(name, {"round": number + 1, **result})
            for key, value in result.items():
                figures[name].setdefault(key, []).append(value)
    figures = {name: found for name, found in figures.items() if "ready_s" in found}
    rounds = min((len(found["ready_s"]) for found in figures.values()), default=0)
    return figures, left_out, rounds


def emit(system: str, figures: dict[str, object]) -> None:
    """Print one line."""
    shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    line = {"benchmark": "peers", "system": system, **shown}
    print(json.dumps(line), flush=True)


def main() -> None:
    """Compare, print, and write if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=25, help="start nothing later")
    parser.add_argument("--only", nargs="+", metavar="SYSTEM", help="measure these")
    parser.add_argument("--envs", help="keep the environments here")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        sys.path[:] = [path for path in sys.path if path != str(HERE)]
        print(json.dumps(RUNS[args.one]()), flush=True)
        return
    began = time.strftime("%Y-%m-%d")
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        envs = Path(args.envs or scratch).absolute()  # Each runs in its own folder.
        figures, left_out, rounds = compare(args, envs)
    for name, found in figures.items():
        for key, values in found.items():
            each = [round(value, 3) for value in values]
            emit(name, {key: statistics.median(values), "rounds": each})
    for name, why in left_out.items():
        emit(name, {"left_out": why})
    if args.write:
        sys.path.insert(0, str(HERE.parent))
        from benchmarks.report.peers_page import write_page

        machine = f"{os.cpu_count()} cores, {platform.machine()}, Python "
        machine += platform.python_version()
        write_page(figures, left_out, rounds=rounds, machine=machine, date=began)


if __name__ == "__main__":
    main()
