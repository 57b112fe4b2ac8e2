"""One batch job: what a script and a command line say, as a job of the shoal.

Options of the command line win over those of the script. A job runs once on each of
its nodes, and `srun` starts its tasks there; without `--nodes` that is one node, with
the CPUs of all tasks. So a script does what it does in Slurm, except that on several
nodes what it does without `srun` is done on each of them.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import shlex
import sys
import time
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from shoal.api.job_ids import new_job_id
from shoal.cli.job_input.script_headers import command_of, escaped, lines_of, parsed
from shoal.cli.job_input.spec_flags import flags_of_a_job, spec_of_flags
from shoal.cli.slurm.formats import file_name
from shoal.cli.slurm.ledger import BatchJob
from shoal.cli.slurm.options import (
    Option,
    gres,
    header_options,
    memory,
    options_in,
    read_option,
)
from shoal.cli.slurm.script import prelude
from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED_VARIABLE: Final = "SHOAL_SLURM_SHARED"
PARTITION: Final = "shoal"
_UNLIMITED: Final = frozenset({"0", "infinite", "unlimited"})
_NAMES: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_OF_THIS_MACHINE: Final = re.compile(
    r"(BASH|DBUS|DISPLAY|GPG|LC_|LD_|LESS|LS_COLORS|MAIL|SBATCH_|SHOAL_|SLURM_|SSH|SUDO"
    r"|TERM|TMUX|VSCODE|WAYLAND|XAUTH|XDG|_$).*"
    r"|COLUMNS|EDITOR|HISTFILE|HOME|HOSTNAME|IFS|LANG|LINES|LOGNAME|OLDPWD|PAGER|PATH"
    r"|PIP_.*|PS1|PWD|SHELL|SHLVL|STY|TMPDIR|USER|VIRTUAL_ENV|WINDOWID"
)
ENVIRONMENT_BYTES_MAX: Final = 64 * 1_024


class Submission(NamedTuple):
    """What is to be done with a batch job, besides handing it in."""

    batch: BatchJob
    notes: list[str]
    parsable: bool
    quiet: bool
    waits: bool
    is_test: bool


class _Asked(NamedTuple):
    """All that was said about a job."""

    name: str
    text: str
    args: tuple[str, ...]
    said: dict[str, Option]  # the last one of each name
    flags: dict[str, Any]
    notes: list[str]

    def value(self, option: str, default: str = "") -> str:
        return self.said[option].value if option in self.said else default

    def number(self, option: str, default: int) -> int:
        """Return a positive number that was said."""
        if option not in self.said:
            return default
        place, _, value = self.said[option]
        if not value.isdecimal() or not int(value):
            raise UsageError(
                f"{place}: --{option} {value} is not a positive number", hint="1"
            )
        return int(value)


def read(words: list[str], environ: Mapping[str, str], cwd: Path) -> Submission:
    """Return the batch job of a command line, such as `--array=0-9 train.sh 3`."""
    asked = _asked(words, cwd)
    nodes, cpus = _sized(asked)
    _named(asked)
    asked.notes.extend(_modules(asked.text, asked.name))
    notes = [f"{name} is set, and is not read" for name in environ if _is_set(name)]
    folder = Path(asked.value("chdir", str(cwd))).expanduser()
    folder = folder if folder.is_absolute() else cwd / folder
    batch = BatchJob(
        job=new_job_id(),
        spec={},
        name=asked.flags["name"],
        user=user_of(environ),
        folder=str(folder),
        command=asked.name,
        output=asked.value("output"),
        error=asked.value("error"),
        appends=asked.value("open-mode") == "append",
        dependency=asked.value("dependency"),
        gives_up=asked.value("kill-on-invalid-dep") == "yes",
        partition=asked.value("partition", PARTITION),
        account=asked.value("account"),
        cpus=cpus * nodes,
        nodes=nodes,
        memory=str(asked.flags.get("ram", "")),
        time_limit=str(asked.flags.get("time_limit", "")),
        submitted_s=time.time(),
    )
    if asked.flags.get("array") is not None:
        _make_array(batch, str(asked.flags["array"]), asked)
    batch.output = batch.output or (
        "slurm-%A_%a.out" if batch.is_array else "slurm-%j.out"
    )
    for pattern in (batch.output, batch.error):
        file_name(pattern, batch, "0", "node")  # Raises now, and not at the end.
    env = _exported(asked, environ) | _variables(batch, asked, nodes, cpus)
    _place(batch, asked.flags, environ.get(SHARED_VARIABLE, ""), folder, cwd)
    asked.flags["env"] = (
        *(f"{name}={value}" for name, value in env.items()),
        *asked.flags.get("env", ()),
    )
    asked.flags["command"] = ("script",)  # It needs the number; see `finished`.
    batch.spec = {"flags": asked.flags, "text": asked.text, "args": asked.args}
    return Submission(
        batch=batch,
        notes=[*asked.notes, *notes],
        parsable="parsable" in asked.said,
        quiet="quiet" in asked.said,
        waits="wait" in asked.said,
        is_test="test-only" in asked.said,
    )


def user_of(environ: Mapping[str, str]) -> str:
    """Return who submits, or asks for jobs of theirs."""
    return environ.get("USER") or environ.get("LOGNAME") or getpass.getuser()


def _asked(words: list[str], cwd: Path) -> _Asked:
    rest = list(words)
    typed = list(options_in("sbatch", rest))
    if rest and rest[0] == "--":
        rest.pop(0)
    wrapped = [option.value for option in typed if option.name == "wrap"]
    if wrapped and rest:
        raise UsageError(
            f"--wrap and the script {rest[0]} contradict each other",
            because="each of them is what the job runs",
            hint="leave one of them out",
        )
    if wrapped:
        name, text = "wrap", f"#!/bin/sh\n{wrapped[-1]}\n"
    else:
        name, text = _script(rest, cwd)
    flags: dict[str, Any] = {"name": PurePath(name).name}
    said: dict[str, Option] = {}
    for number, kind, line in lines_of(name, text):
        place = f"{name}:{number}"
        if kind == "SHOAL":
            flags |= parsed(place, line, _flags_of)
        else:
            said |= {option.name: option for option in header_options(place, line)}
    said |= {option.name: option for option in typed}
    return _Asked(name, text, tuple(rest[1:]), said, flags, [])


def _script(rest: list[str], cwd: Path) -> tuple[str, str]:
    if not rest and sys.stdin.isatty():
        raise UsageError(
            "there is nothing to run",
            because="no script was given, and none comes on standard input",
            hint="sbatch train.sh, or sbatch --wrap 'python train.py'",
        )
    name = PurePath(rest[0]).name if rest else "sbatch"
    try:
        data = (cwd / rest[0]).read_bytes() if rest else sys.stdin.buffer.read()
        text = data.decode()
    except OSError as error:
        raise UsageError(
            f"cannot read {rest[0]}",
            because=error.strerror or str(error),
            hint="options of sbatch come before the script, and its arguments after it",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{name} is not a script",
            because="it is not text",
            hint=f"sbatch --wrap {shlex.quote(rest[0] if rest else './program')}",
        ) from None
    return name, text.replace("\r\n", "\n")


def _flags_of(words: list[str]) -> dict[str, Any]:
    options: list[click.Parameter] = [*flags_of_a_job()]
    reader = click.Command("#SHOAL", params=options, add_help_option=False)
    with reader.make_context("#SHOAL", list(words)) as context:
        found = context.params.items()
    return {name: value for name, value in found if value not in (None, ())}


OWN: Final = frozenset(
    {
        *("cpus-per-gpu", "cpus-per-task", "dependency", "error", "export", "gpus"),
        *("gpus-per-node", "gpus-per-task", "gres", "kill-on-invalid-dep"),
        *("mem-per-cpu", "mem-per-gpu", "nodelist", "nodes", "ntasks", "output"),
        *("ntasks-per-node", "open-mode", "parsable", "quiet", "test-only", "wait"),
        *("wrap", "chdir"),
    }
)
"""Options that are read here; all others mean what they mean to `shoal submit`."""


def _named(asked: _Asked) -> None:
    """Read the options that stand for one flag each."""
    for option in asked.said.values():
        if option.name == "time" and option.value.lower() in _UNLIMITED:
            continue
        if option.name not in OWN:
            read_option(option, asked.flags, asked.notes)
    if asked.value("nodelist"):
        asked.flags["on"] = tuple(asked.value("nodelist").split(","))
    # As in Slurm, whose jobs reach the network; a line of #SHOAL may say no.
    asked.flags.setdefault("network", True)


def _sized(asked: _Asked) -> tuple[int, int]:
    """Read how many nodes there are, and what each has; return nodes and CPUs."""
    flags = asked.flags
    nodes = _nodes(asked)
    each = asked.number("ntasks-per-node", 0)
    tasks = asked.number("ntasks", (each or 1) * nodes)
    each = each or math.ceil(tasks / nodes)
    gpus, kind = _gpus(asked, nodes, each)
    per_task = asked.number("cpus-per-task", 1)
    cpus = max(each * per_task, gpus * asked.number("cpus-per-gpu", 0))
    if cpus > 1 or "cpus-per-task" in asked.said:
        flags["cpu"] = str(cpus)
    if gpus:
        flags["gpus"] = f"{kind}:{gpus}" if kind else str(gpus)
    for option, times in (("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
        if option in asked.said:
            place, _, value = asked.said[option]
            amount = memory(place, value)
            number = amount.rstrip("KMGTB")
            flags["ram"] = f"{int(number) * times}{amount[len(number) :]}"
    if nodes > 1:
        flags["nodes"], flags["distinct_nodes"] = nodes, True
        told = "runs on each of its nodes; on one of them: `srun -N1 -n1`"
        asked.notes.append(f"{asked.name}: what is not started by srun {told}")
    return nodes, int(float(flags.get("cpu", 1)))


def _nodes(asked: _Asked) -> int:
    if "nodes" not in asked.said:
        return 1
    place, _, value = asked.said["nodes"]
    least, dash, most = value.partition("-")
    if not least.isdecimal() or not int(least) or (dash and not most.isdecimal()):
        raise UsageError(f"{place}: '{value}' is not a number of nodes", hint="2")
    if dash and most != least:
        asked.notes.append(f"{place}: of {value} nodes the job gets {least}")
    return int(least)


def _gpus(asked: _Asked, nodes: int, each: int) -> tuple[int, str]:
    """Return how many GPUs a node has, and of which model."""
    shares = {"gres": 1, "gpus-per-node": 1, "gpus-per-task": each, "gpus": 0}
    for option, times in shares.items():
        if option not in asked.said:
            continue
        place, _, value = asked.said[option]
        if value in ("none", "0"):
            continue
        text = gres(place, value if option == "gres" else f"gpu:{value}")
        kind, _, count = text.rpartition(":")
        total = int(count) * times if times else math.ceil(int(count) / nodes)
        return total, kind
    return 0, ""


def _make_array(batch: BatchJob, array: str, asked: _Asked) -> None:
    from shoal.model.spec.points import parse_array  # noqa: PLC0415 - Slow.

    try:
        indexes = parse_array(array)
    except UsageError as error:
        place = asked.said["array"].place if "array" in asked.said else asked.name
        raise UsageError(
            f"{place}: {error.what}", because=error.because, hint="0-9, 1,3,5 or 0-99:5"
        ) from None
    if batch.nodes > 1:
        raise UsageError(
            "an array cannot have several nodes for each task",
            because="a gang is one job of the shoal",
            hint=f"for i in ...; do sbatch -N {batch.nodes} {batch.command} $i; done",
        )
    batch.indexes, batch.count = array, len(indexes)


def _variables(batch: BatchJob, asked: _Asked, nodes: int, cpus: int) -> dict[str, str]:
    """Return what Slurm tells each task of a job in variables."""
    each = asked.number("ntasks-per-node", 0)
    tasks = asked.number("ntasks", (each or 1) * nodes)
    each = each or math.ceil(tasks / nodes)
    found = {
        "SLURM_JOB_NAME": batch.name,
        "SLURM_JOB_USER": batch.user,
        "SLURM_JOB_PARTITION": batch.partition,
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NNODES": str(nodes),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_TASKS_PER_NODE": str(each),
        "SLURM_NTASKS_PER_NODE": str(each),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_CPUS_PER_NODE": str(cpus),
        "SLURM_SUBMIT_DIR": batch.folder,
        "SLURM_SUBMIT_HOST": os.uname().nodename,
        "SLURM_CLUSTER_NAME": PARTITION,
    }
    if "cpus-per-task" in asked.said:
        found["SLURM_CPUS_PER_TASK"] = asked.value("cpus-per-task")
    if batch.account:
        found["SLURM_JOB_ACCOUNT"] = batch.account
    if "gpus" in asked.flags:
        found["SLURM_GPUS_ON_NODE"] = str(asked.flags["gpus"]).rpartition(":")[2]
    if batch.is_array:
        from shoal.model.spec.points import parse_array  # noqa: PLC0415 - Slow.

        indexes = parse_array(batch.indexes)
        found["SLURM_ARRAY_TASK_COUNT"] = str(len(indexes))
        found["SLURM_ARRAY_TASK_MIN"] = str(min(indexes))
        found["SLURM_ARRAY_TASK_MAX"] = str(max(indexes))
    return found


def _exported(asked: _Asked, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of here that a job gets, as `--export` says.

    Without it a job gets those that its script names. All of them is what Slurm does;
    but here a job, its variables with it, may run on the machine of somebody else.
    """
    given = asked.value("export")
    words = [word for word in given.split(",") if word]
    found: dict[str, str] = {}
    sendable = {n: v for n, v in environ.items() if not _OF_THIS_MACHINE.fullmatch(n)}
    if not words:
        named = dict.fromkeys(_NAMES.findall(asked.text))
        return {name: sendable[name] for name in named if name in sendable}
    for word in words:
        name, equals, value = word.partition("=")
        if word == "ALL":
            found |= sendable
        elif word in ("NONE", "NIL"):
            continue
        elif equals:
            found[name] = value
        elif name in environ:
            found[name] = environ[name]
    size = sum(len(name) + len(value) for name, value in found.items())
    if size > ENVIRONMENT_BYTES_MAX:
        raise UsageError(
            f"--export={given} is {size >> 10} KiB of variables",
            because=f"a job takes {ENVIRONMENT_BYTES_MAX >> 10} KiB",
            hint="name those that it needs: --export=LR,SEED",
        )
    return found


def _place(
    batch: BatchJob, flags: dict[str, Any], shared: str, folder: Path, cwd: Path
) -> None:
    """Let a job run in the folder of Slurm's users, or in a copy of it."""
    for pair in filter(None, shared.split(":")):
        name, _, root = pair.partition("=")
        if folder.is_relative_to(root):
            batch.in_place = True
            flags["mounts"] = tuple(dict.fromkeys((*flags.get("mounts", ()), name)))
            return
    if "workdir" in flags:
        flags["workdir"] = str(cwd / flags["workdir"])
    elif folder in (Path.home(), Path("/")):
        pass  # Nobody means to send all of it.
    else:
        flags["workdir"] = str(folder)


def _modules(text: str, name: str) -> list[str]:
    lines = enumerate(text.splitlines(), start=1)
    loads = [n for n, line in lines if re.match(r"\s*(module|ml)\s+\w", line)]
    if not loads:
        return []
    told = "`#SHOAL --python requirements.txt` or `--image` gives a job its software"
    return [f"{name}:{loads[0]}: modules are those of the worker, if any; {told}"]


def _is_set(name: str) -> bool:
    return name.startswith("SBATCH_")


def finished(batch: BatchJob, home: Path, python: str) -> dict[str, Any]:
    """Return the spec of a job that has its number, with folders not yet sent."""
    import json  # noqa: PLC0415 - Loaded by then.

    flags, text = dict(batch.spec["flags"]), batch.spec["text"]
    output = {
        "stdout": _path(batch, batch.output),
        "stderr": _path(batch, batch.error) if batch.error else "",
        "how": ">>" if batch.appends else ">",
    }
    before = prelude(
        batch.number, batch.indexes, output, batch.folder if batch.in_place else ""
    )
    flags["command"] = command_of(
        batch.command, text, before, tuple(batch.spec["args"])
    )
    numbers = {"SLURM_JOB_ID": batch.number, "SLURM_JOBID": batch.number}
    if batch.is_array:
        numbers = {"SLURM_ARRAY_JOB_ID": batch.number}
    flags["env"] = (*flags["env"], *(f"{k}={v}" for k, v in numbers.items()))
    document: dict[str, Any] = json.loads(spec_of_flags(flags))
    call = ("shoal.cli", "slurm", "ended", str(batch.number))
    document["on_end"] = {"command": ["env", f"SHOAL_HOME={home}", python, "-m", *call]}
    return document


def _path(batch: BatchJob, pattern: str) -> str:
    """Return an output file as a word of shell, with the index in braces."""
    index = "\0" if batch.is_array else ""
    name = file_name(pattern, batch, index, "\1")
    path = escaped(shlex.quote(str(PurePath(batch.folder) / name)))
    return path.replace("\0", "'{index}'").replace("\1", "'\"$SLURMD_NODENAME\"'")
