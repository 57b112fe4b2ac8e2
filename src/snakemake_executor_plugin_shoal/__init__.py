"""An executor of Snakemake: `snakemake --executor shoal --jobs 100`.

Each job of a workflow is a job of the shoal. No file system is shared: its input and
the sources of the workflow travel with it, each file once to each worker, and its
output comes back before Snakemake is told. So a job may read what its rule names as
input, and nothing else.

Snakemake finds executors by the name of their module. It runs in each task, so workers
need it: by default they make an environment with the version that runs here.
"""

# Snakemake's interface need not be installed, and its types say less than it does.
# pyright: reportIncompatibleMethodOverride=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportMissingTypeStubs=false
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false

# No annotations from the future: Snakemake reads those of `ExecutorSettings`.
import json
import os
import re
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import (
    CommonSettings,
    ExecutorSettingsBase,
)

from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.api.client.shipping import ship_paths, take_outputs
from shoal.api.documents import state_of
from shoal.api.job_ids import new_job_id
from shoal.api.node_file import running
from shoal.client.client import start_node
from shoal.errors import NotFoundError, ShoalError, UnreachableError
from shoal.runtime.home import Home

ENDS: Final = frozenset({"done", "failed", "cancelled", "unknown"})
LOG_BYTES: Final = 4_096
_WILD: Final = re.compile(r"([*?\[\\!])")

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=True,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,  # They are in the spec.
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
    can_transfer_local_files=True,
)


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Flags of `snakemake`, as `--shoal-python`."""

    python: str = field(
        default="",
        metadata={
            "help": "Python environment with Snakemake that workers offer (shoal up "
            "--python NAME=FOLDER). By default each worker makes one."
        },
    )
    node: str = field(
        default="",
        metadata={"help": "Address of the node that takes the jobs: host:port."},
    )


class Executor(RemoteExecutor):
    """Runs the jobs of a workflow in the shoal."""

    def __post_init__(self) -> None:
        """Find the node, or start one."""
        self._folder = Path.cwd()
        self._settings: ExecutorSettings = self.workflow.executor_settings
        self._home = Home.default()
        self._source_files: list[str] | None = None
        try:
            if not self._settings.node and running(self._home) is None:
                start_node(self._home)
            with self._connected() as client:
                client.info()
        except ShoalError as error:
            raise _told(error) from None

    def run_job(self, job: Any) -> None:  # noqa: ANN401 - Snakemake's own.
        """Submit a job, or find the one that an interrupted run has left."""
        info = SubmittedJobInfo(job)
        try:
            with self._connected() as client:
                info.external_jobid = self._left(client, job) or self._submit(
                    client, job
                )
        except ShoalError as error:
            self.report_job_error(info, msg=f"{_told(error)} ")
            return
        self.report_job_submission(info)

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Tell Snakemake which jobs have ended; yield the others."""
        for info in active_jobs:
            async with self.status_rate_limiter:
                try:
                    with self._connected() as client:
                        has_ended = self._settled(client, info)
                except UnreachableError:
                    has_ended = False  # The job goes on, and so does this.
                except ShoalError as error:
                    self.report_job_error(info, msg=f"{_told(error)} ")
                    has_ended = True
                if not has_ended:
                    yield info

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel the jobs of a workflow that is given up."""
        with self._connected() as client:
            for info in active_jobs:
                client.cancel(str(info.external_jobid), "the workflow was given up")

    def get_python_executable(self) -> str:
        """Return what runs Snakemake in a task."""
        return "python"

    def _connected(self) -> api.Client:
        return api.connect(self._settings.node or None, self._home)

    def _left(self, client: api.Client, job: Any) -> str:  # noqa: ANN401
        """Return the job of an earlier run of Snakemake that goes on, if one does."""
        found = self.dag.incomplete_external_jobid(job)
        try:
            known = client.get(found, tasks_max=1) if found else None
        except NotFoundError:
            return ""
        if known is None or state_of(known.state) in ENDS - {"done"}:
            return ""
        self.logger.info("Job %s is job %s of the shoal already.", job.jobid, known.id)
        return known.id

    def _submit(self, client: api.Client, job: Any) -> str:  # noqa: ANN401
        files = [*self._sources(), *_present(job)]
        sent = ship_paths(client, self._folder, map(_pattern, files))
        if sent.notes:
            raise ShoalError(
                f"the input of {job.name} cannot travel",
                because=sent.notes[0],
                hint="copy the file into the folder of the workflow",
            )
        spec = {**self._spec_of(job), "workdir": sent.tree}
        request = pb.SubmitRequest(job_id=new_job_id(), json=json.dumps(spec))
        return client.submit(request).job.id

    def _sources(self) -> list[str]:
        """Return the files of the workflow itself, below its folder."""
        if self._source_files is None:  # Which asks git, so it is asked once.
            found = {*self.dag.get_sources(), *self.workflow.overwrite_configfiles}
            self._source_files = [self._below(str(file)) for file in sorted(found)]
        return self._source_files

    def _spec_of(self, job: Any) -> dict[str, Any]:  # noqa: ANN401
        amounts = {k: v for k, v in job.resources.items() if isinstance(v, int)}
        resources: dict[str, Any] = {"cpu": job.threads}
        for name, resource, unit in (
            ("ram", "mem_mb", "MB"),
            ("disk", "disk_mb", "MB"),
            ("gpu", "gpu", ""),
        ):
            if amounts.get(resource):
                resources[name] = f"{amounts[resource]}{unit}"
        spec: dict[str, Any] = {
            "name": job.name,
            "command": ["sh", "-c", _escaped(self.format_job_exec(job))],
            "resources": resources,
            "outputs": [_pattern(self._below(f)) for f in _made(job)],
            "python": self._python(),
            "env": {**self.envvars(), "XDG_CACHE_HOME": "/tmp/cache"},  # noqa: S108
            "network": True,  # As everywhere that rules were written for.
        }
        if amounts.get("runtime"):
            spec["time_limit"] = f"{amounts['runtime']}m"
        return spec

    def _python(self) -> dict[str, Any]:
        if self._settings.python:
            return {"name": self._settings.python}
        return {"packages": [f"snakemake=={version('snakemake')}"]}

    def _below(self, file: str) -> str:
        path = os.path.relpath(file, self._folder)
        if path.startswith(".."):
            raise ShoalError(
                f"{file} is not in the folder of the workflow",
                because="what a job needs travels with it, from that folder",
                hint="put it there; or share a folder, and use the executor "
                "cluster-generic with the sbatch of `shoal slurm install`",
            )
        return path

    def _settled(self, client: api.Client, info: SubmittedJobInfo) -> bool:
        """Take over what a job left, and report it, if it has ended."""
        job = client.get(str(info.external_jobid))
        state = state_of(job.state)
        if state not in ENDS:
            return False
        if (kept := client.outputs(job.id)).tasks:
            take_outputs(kept, client, self._folder, as_left=True)
        if state == "done":
            self.report_job_success(info)
            return True
        request = pb.LogsRequest(job=job.id, last_bytes=LOG_BYTES)
        text = b"".join(piece.data for piece in client.logs(request))
        why = job.reason or (job.tasks[0].reason if job.tasks else "")
        told = f"job {job.id} of the shoal {state}: {why}\n"
        self.report_job_error(info, msg=told + text.decode(errors="replace"))
        return True


def _present(job: Any) -> Iterable[str]:  # noqa: ANN401
    """Return the input of a job: its files, as Snakemake names them."""
    return [os.path.relpath(str(file)) for file in job.input]


def _made(job: Any) -> list[str]:  # noqa: ANN401
    """Return what a job makes: its output, and its notes for people."""
    jobs = list(job.jobs) if job.is_group() else [job]
    made: dict[str, None] = {}
    for each in jobs:
        for file in (*each.output, *each.log, *filter(None, [each.benchmark])):
            is_folder = getattr(file, "is_directory", False)
            made[f"{file}/" if is_folder else str(file)] = None
    return list(made)


def _pattern(file: str) -> str:
    """Return a file as a pattern that means only this one."""
    return _WILD.sub(r"\\\1", file)


def _escaped(command: str) -> str:
    """Keep braces of a command from being read as parameters of a job."""
    from shoal.cli.job_input.script_headers import escaped  # noqa: PLC0415

    return escaped(command)


def _told(error: ShoalError) -> WorkflowError:
    parts = (error.what, error.because, error.hint)
    return WorkflowError("; ".join(part for part in parts if part))
