"""Trace values in our units: jobs, pods, hosts and clusters."""

from __future__ import annotations

import msgspec


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a batch or training cluster, as far as its trace tells."""

    id: str
    submitted_s: float
    run_s: float  # how long it ran; 0 or less if that is not known
    requested_s: float  # how long its user said it would run; else as long as it ran
    slots: int  # processors or GPUs that it had at once
    owner: str = ""
    model: str = ""  # what it trained
    steps: int = 0
    step_ms: float = 0.0
    stages_ms: tuple[float, ...] = ()  # of a step: loading, computing, communication


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A container that wants room on one host."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_milli: int = 0  # of each GPU
    models: tuple[str, ...] = ()  # any of these; empty means any
    created_s: float = 0.0
    deleted_s: float = 0.0

    @property
    def gpu_milli_all(self) -> int:
        """What it wants of all its GPUs together."""
        return self.gpus * self.gpu_milli


class TraceHost(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, and its GPUs, which are alike."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    model: str = ""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster of equal hosts below switches."""

    switches: int = 1
    hosts_per_switch: int = 1
    gpus_per_host: int = 8

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.switches * self.hosts_per_switch

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return self.hosts * self.gpus_per_host


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a language model."""

    arrived_s: float
    context_tokens: int
    generated_tokens: int
    blocks: tuple[int, ...] = ()
    """Names of the blocks of its context, first to last, if the trace tells.

    A name stands for the block and all before it: two requests whose contexts begin
    alike have the same names up to where they differ.
    """


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, and the size of the cluster that they ran on, if the trace says so."""

    name: str
    jobs: tuple[TraceJob, ...]
    slots: int = 0
