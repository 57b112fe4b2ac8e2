"""A hostile task: mallory submits it by an honest node, and it runs at the lender's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from attacks.reef import API, PORT, on_terminal, soon
from attacks.verdict import attack, must

if TYPE_CHECKING:
    from attacks.reef import Done, Reef

INSIDE = Path(__file__).parent / "inside"
KEY = "shoal-attack-key"
PYTHON = "python3"


class Probe(NamedTuple):
    """What one probe inside the sandbox came to."""

    got: bool
    seen: str


_probes: dict[str, Probe] = {}


def probes(reef: Reef) -> dict[str, Probe]:
    """Run the probes in a task, once, and return what they saw."""
    if _probes:
        return _probes
    home = reef.lender.home
    assert reef.lender.process is not None
    with socket.socket(socket.AF_UNIX) as door, socket.socket() as service:
        door.bind(f"\0{reef.folder.name}")
        door.listen()
        service.bind(("127.0.0.1", 0))
        service.listen()
        told = {
            "private": [
                str(path)
                for path in (
                    *(home.key, home.root_key, home.membership, home.journal),
                    *(home.socket, home.path / "api.token", Path("/etc/shadow")),
                    *(Path("/root/.ssh"), Path("/root/.bashrc")),
                )
            ],
            "pid": reef.lender.process.pid,
            "services": [
                (reef.lender.host, PORT),
                (reef.lender.host, API),
                ("127.0.0.1", service.getsockname()[1]),
                ("127.0.0.1", 22),
                ("169.254.169.254", 80),
            ],
            "abstract": [reef.folder.name],
            "names": [reef.folder.name, "lender"],
            "hostname": os.uname().nodename if len(os.uname().nodename) > 5 else "",
            "prize": reef.prize,
            "key": KEY,
            "ghost": ghost(reef),
        }
        folder = reef.folder / "probes"
        shutil.copytree(INSIDE, folder, dirs_exist_ok=True)
        (folder / "told.json").write_text(json.dumps(told))
        done = ran(reef, "--workdir", str(folder), "--", PYTHON, "probes.py")
    for line in done.out.splitlines():
        if line.startswith('{"probe"'):
            found = json.loads(line)
            _probes[found["probe"]] = Probe(found["got"], found["seen"])
    assert _probes, done
    return _probes


def ghost(reef: Reef) -> str:
    """Return the name of the process that a task of this reef leaves behind."""
    return f"ghost-{reef.folder.name[-8:]}"  # The kernel keeps 15 characters.


def ran(reef: Reef, *args: str) -> Done:
    """Run a job of mallory's at the lender's machine to its end."""
    return reef.mallory("run", *args)


def ran_program(
    reef: Reef, name: str, *args: str, arguments: tuple[str, ...] = ()
) -> Done:
    """Run a program of ours at the lender's machine to its end."""
    return ran(reef, "--workdir", str(INSIDE), *args, "--", PYTHON, name, *arguments)


def why(done: Done) -> str:
    """Return the line in which a command says why a job failed."""
    lines = done.err.strip().splitlines()
    told = [line for line in lines if "limit" in line or "why" in line]
    return (told or lines or [f"exit {done.code}"])[0]


PROMISES = {
    "syscalls": "system calls that no task needs are refused",
    "other abis": "the filter holds for every way to call the kernel",
    "files": "a task reads no file of the lender",
    "writing": "a task writes below its work directory only",
    "processes": "a task sees and signals its own processes only",
    "network": "a task of another owner reaches no network",
    "raw sockets": "a task can neither listen to others nor speak for them",
    "mounts": "a task learns no path of the lender's",
    "names": "a task learns no name and no secret of the lender's",
    "privileges": "a task has no privilege and gets none",
    "devices": "a task opens its own devices only",
    "tracing": "a task traces nobody else",
    "keyrings": "a task sees no key of the lender's session",
    "terminal": "a task types into no terminal",
    "limits": "the number of processes is bounded",
    "descriptors": "a task inherits no open file",
    "tells": "whatever a task says to its worker is checked",
}


def _register(name: str, promise: str) -> None:
    def run(reef: Reef) -> str:
        found = probes(reef)[name]
        if name == "mounts" and "where its folders lie" in reef.lender("doctor").out:
            return "not promised here, and doctor says so"
        must(not found.got, found.seen)
        return found.seen

    run.__name__ = f"probe_{name.replace(' ', '_')}"
    attack("task", promise)(run)


for _name, _promise in PROMISES.items():
    _register(_name, _promise)


@attack("task", "when a task ends, none of its processes is left")
def leaving_a_process_behind(reef: Reef) -> str:
    assert "ghosts" in probes(reef)
    gone = soon(lambda: not _named(ghost(reef)), 5.0)
    must(gone, "a process outlived its task")
    return "all were killed"


def _named(name: str) -> list[int]:
    everybody = psutil.process_iter(["name"])
    return [one.pid for one in everybody if one.info["name"] == name]


@attack("task", "shared memory counts as memory of the task")
def filling_shared_memory(reef: Reef) -> str:
    done = ran_program(reef, "fill_shared_memory.py", "--ram", "64MB")
    must("filled" not in done.out, "110 MiB within a limit of 64 MB")
    return why(done)


@attack("task", "memory of all processes of a task is bounded together")
def memory_by_many_processes(reef: Reef) -> str:
    done = ran_program(reef, "fill_memory.py", "--ram", "128MB")
    alive = int(done.out.split()[-1]) if "alive" in done.out else 0
    must(alive * 40 <= 128, f"{alive * 40} MiB within a limit of 128 MB")
    return why(done)


@attack("task", "the disk of a task is bounded")
def filling_the_disk(reef: Reef) -> str:
    done = ran_program(reef, "fill_disk.py", "--disk", "50MB")
    must("filled" not in done.out, "300 MiB within a limit of 50 MB")
    return why(done)


@attack("task", "a file that was deleted still counts while it is open")
def filling_the_disk_with_deleted_files(reef: Reef) -> str:
    done = ran_program(reef, "fill_disk_unseen.py", "--disk", "50MB")
    must("filled" not in done.out, "300 MiB within a limit of 50 MB")
    return why(done)


@attack("task", "processes and threads of a task are bounded")
def thousands_of_threads(reef: Reef) -> str:
    done = ran_program(reef, "start_threads.py", "--ram", "4GB")
    must("made 20000" not in done.out, "20,000 processes")
    return f"{done.out.strip() or done.err.strip()[-100:]}; {reef.serves()}"


@attack("task", "nothing that a task leaves on disk stays")
def folders_that_are_hard_to_remove(reef: Reef) -> str:
    allowed = ran_program(reef, "leave_folders.py", arguments=("500",))
    assert "made" in allowed.out, allowed
    # This one is killed as soon as it is seen, if it does not end before.
    ran_program(reef, "leave_folders.py", arguments=("1500",))
    left = soon(lambda: not _work(reef), 10.0)
    must(left, f"left behind: {[path.name for path in _work(reef)][:3]}")
    return f"removed; {reef.serves()}"


def _work(reef: Reef) -> list[Path]:
    folders = reef.lender.home.tasks.iterdir()
    return [path for path in folders if (path / ("d" * 100)).exists()]


@attack("task", "outputs hold the files of a task, and nothing that links lead to")
def outputs_that_lead_elsewhere(reef: Reef) -> str:
    key = reef.lender.home.key
    script = (
        f"mkdir out; ln -s {key} out/key; ln -s / out/root; ln -s /etc/hostname out/h; "
        "mkfifo out/pipe; ln -s out out/loop; echo mine > out/mine; "
        f"ln -s {key.parent} linked"
    )
    target = reef.folder / "pulled"
    reef.mallory(
        "run", "--output", "out", "--output", "linked", "--", "sh", "-c", script
    )
    reef.mallory("pull", "--to", str(target))
    found = [path for path in target.glob("**/*") if path.is_file()]
    secret = key.read_bytes()
    for path in found:
        must(path.read_bytes() != secret, f"{path.name} is the key of the node")
    return f"{[path.name for path in found][:4]}; {reef.serves()}"


@attack("task", "a task that writes without end fills neither memory nor disk")
def one_endless_line(reef: Reef) -> str:
    before, disk = reef.lender.memory(), reef.lender.disk()
    done = ran(reef, "--", "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x >&2")
    grown = reef.lender.memory() - before
    filled = reef.lender.disk() - disk
    must(grown < 16 << 20, f"memory grew by {grown >> 20} MiB")
    must(filled < 16 << 20, f"the disk holds {filled >> 20} MiB more")
    return f"+{max(grown, 0) >> 20} MiB of memory, exit {done.code}; {reef.serves()}"


@attack("task", "orders that no kernel takes end as failed tasks")
def arguments_that_are_too_many(reef: Reef) -> str:
    job = reef.folder / "many.json"
    job.write_text(json.dumps({"command": ["true", *["x" * 60_000] * 60]}))
    one = reef.mallory("run", str(job))
    job.write_text(
        json.dumps(
            {"command": ["true"], "env": {f"V{n}": "x" * 30_000 for n in range(200)}}
        )
    )
    two = reef.mallory("run", str(job))
    return f"{(one.err or two.err).strip().splitlines()[:1]}; {reef.serves()}"


@attack("task", "one task learns nothing of the one before it in the same sandbox")
def what_the_task_before_left(reef: Reef) -> str:
    ran(
        reef,
        "--",
        "sh",
        "-c",
        "echo kept > /tmp/kept; echo kept > /dev/shm/kept; "
        "echo kept > kept; (sleep 100 &) ; ipcmk -M 4096 >/dev/null 2>&1; true",
    )
    done = reef.alice(
        "run", "--", "sh", "-c", "ls -A . /tmp /dev/shm; ipcs -m | tail -n+4"
    )
    must("kept" not in done.out, f"it finds {done.out!r}")
    must("0x" not in done.out, f"it finds shared memory: {done.out!r}")
    return "an empty sandbox"


@attack("task", "keys of the lender's session stay there")
def a_key_in_the_session_of_the_node(reef: Reef) -> str:
    subprocess.run(
        ["keyctl", "add", "user", KEY, "x", "@s"], check=False, capture_output=True
    )
    done = ran_program(reef, "request_key.py")
    must(done.out.strip().startswith("-1"), f"request_key gave {done.out.strip()}")
    return "request_key is refused"


@attack("task", "a task that must go goes, whatever it ignores")
def ignoring_every_signal(reef: Reef) -> str:
    job = reef.mallory.submit(
        "--grace", "1s", "--workdir", str(INSIDE), "--", PYTHON, "ignore_signals.py"
    )
    assert soon(lambda: "deaf" in reef.mallory("logs", job).out, 20.0)
    began = time.monotonic()
    reef.mallory("cancel", job)
    reef.mallory("wait", job)
    took = time.monotonic() - began
    must(took < 10.0, f"it took {took:.0f} s")
    return f"gone after {took:.1f} s"


@attack("task", "output of a task does to a terminal what colours do, and no more")
def output_that_writes_to_the_clipboard(reef: Reef) -> str:
    text = "\\033]52;c;ZXZpbA==\\007\\033[6n\\033[2J\\033[31mred\\033[0m"
    done = ran(reef, "--name", "loud", "--", "printf", text)
    assert done.code == 0, done
    job = reef.mallory.json("ps", "--all")["jobs"][-1]["id"]
    screen = on_terminal(reef.mallory, "logs", str(job))
    assert "red" in screen, f"nothing was printed: {screen!r}"
    bad = [each for each in ("\x1b]52", "\x1b[6n", "\x1b[2J") if each in screen]
    must(not bad, f"the terminal was told {bad}")
    return "colours came through, and nothing else"
