"""What a task runs before a script of Slurm: its variables, `srun` and its kin.

All of it is one line of POSIX shell in the place of the script's first one, so that
lines keep their numbers, and `sh`, `bash` and `zsh` take it alike.

`srun` starts its command once for each task of Slurm that is on this node; the tasks
of all nodes are numbered through. An option of it that would change what runs, and
that is not done here, fails the step with a message.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from shoal.cli.job_input.script_headers import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

PLACES: Final = (
    "export SLURM_NODEID=${NODE_RANK:-0} SLURM_LOCALID=0"
    " SLURM_PROCID=$((${NODE_RANK:-0} * SLURM_TASKS_PER_NODE))"
    " SLURMD_NODENAME=$(hostname 2>/dev/null);"
    " SLURMD_NODENAME=${SLURMD_NODENAME:-localhost};"
    " SLURM_JOB_NODELIST=$(printf '%s' \"${NODE_IPS:-$SLURMD_NODENAME}\""
    " | paste -sd,);"
    " export SLURM_JOB_NODELIST SLURM_NODELIST=$SLURM_JOB_NODELIST;"
)
"""What differs from node to node; `NODE_IPS` has one address in each line."""

_SRUN_OPTIONS: Final = (
    " --) shift; break;;"
    " -n|--ntasks) n=$2; shift 2;;"
    " -n*) n=${1#-n}; shift;;"
    " --ntasks=*) n=${1#*=}; shift;;"
    " -N|--nodes) nodes=$2; shift 2;;"
    " -N*) nodes=${1#-N}; shift;;"
    " --nodes=*) nodes=${1#*=}; shift;;"
    " --ntasks-per-node) each=$2; shift 2;;"
    " --ntasks-per-node=*) each=${1#*=}; shift;;"
    " -o*|-e*|-i*|-w*|-x*|-D*|-r*|--output*|--error*|--input*|--nodelist*|--exclude*"
    "|--chdir*|--relative*|--multi-prog|--het-group*|--array*)"
    ' echo "srun: $1 is not supported by shoal: leave it out, or write it in shell"'
    " >&2; return 1;;"
    " -l|-u|-K|-O|-s|-k|-Q|-v|-E|-X|--label|--unbuffered|--exclusive|--exact|--overlap"
    "|--pty|--overcommit|--quiet|--verbose|--kill-on-bad-exit|--oversubscribe|--no-kill"
    "|--preserve-env|--disable-status|--*=*) shift;;"
    " --*) shift 2;;"
    " -?) shift 2;;"
    " -?*) shift;;"
    " *) break;;"
)
"""How `srun` reads its words; what it does not heed is how a step is bound."""

SRUN: Final = (
    "srun() {"
    " local n nodes each first i c p;"
    " n=; nodes=$SLURM_NNODES; each=;"
    f" while [ $# -gt 0 ]; do case $1 in{_SRUN_OPTIONS} esac; done;"
    ' [ $# -gt 0 ] || { echo "srun: no command was given" >&2; return 1; };'
    ' [ -n "$n" ] || { [ "$nodes" = "$SLURM_NNODES" ] && n=$SLURM_NTASKS; };'
    ' [ -n "$n" ] || n=$nodes;'
    ' [ -n "$each" ] || each=$(((n + nodes - 1) / nodes));'
    " first=$((SLURM_NODEID * each));"
    " [ $SLURM_NODEID -lt $nodes ] && [ $first -lt $n ] || return 0;"
    " [ $((first + each)) -le $n ] || each=$((n - first));"
    " if [ $each -eq 1 ]; then"
    ' ( export SLURM_PROCID=$first SLURM_NTASKS=$n SLURM_STEP_ID=0; "$@" ); return;'
    " fi;"
    " i=0; p=; c=0;"
    " while [ $i -lt $each ]; do"
    " ( export SLURM_LOCALID=$i SLURM_PROCID=$((first + i)) SLURM_NTASKS=$n"
    ' SLURM_STEP_ID=0; "$@" ) & p="$p $!"; i=$((i + 1)); done;'
    " for i in $(echo $p); do wait $i || c=$?; done; return $c; };"
)

OTHERS: Final = (
    " scontrol() {"
    ' if [ "$1 $2" = "show hostnames" ]; then'
    " echo \"${3:-$SLURM_JOB_NODELIST}\" | tr ',' '\\n';"
    ' else echo "scontrol: only \\`show hostnames\\` is supported by shoal" >&2;'
    " return 1; fi; };"
    " command -v module >/dev/null 2>&1 || {"
    ' module() { echo "module $*: this node has no environment modules, so nothing was'
    ' loaded; shoal gives a job its software by #SHOAL --python or --image" >&2; };'
    ' ml() { module "$@"; }; };'
)
"""A missing module is told and not fatal: often the program is there without it."""


def prelude(number: int, indexes: str, output: Mapping[str, str], folder: str) -> str:
    """Return one line of shell to run before a script, its braces escaped.

    `indexes` is empty but for an array. In a shared `folder`, if one is given, output
    is written as the script runs; the names in `output` may have the index in braces.
    """
    array = ""
    if indexes:
        array = (
            "export SLURM_ARRAY_TASK_ID={index}"
            f" SLURM_JOB_ID=$(({number} + SHOAL_TASK_INDEX));"
            " export SLURM_JOBID=$SLURM_JOB_ID; "
        )
    own = escaped(f"{PLACES} {SRUN}{OTHERS}")
    return f"{array}{own} {_in_place(folder, output)}".rstrip()


def _in_place(folder: str, output: Mapping[str, str]) -> str:
    """Return what leads to a shared folder, and output to files in it."""
    if not folder:
        return "" if output.get("stderr") else "exec 2>&1;"
    lines = [f"cd {escaped(shlex.quote(folder))} || exit 1;"]
    out, errors = output["stdout"], output.get("stderr", "")
    how = output["how"]
    lines += [f'mkdir -p "$(dirname {path})";' for path in (out, errors) if path]
    lines.append(f'echo "output: "{out};')
    lines.append(f"exec {how}{out} {f'2{how}{errors}' if errors else '2>&1'};")
    return " ".join(lines)
