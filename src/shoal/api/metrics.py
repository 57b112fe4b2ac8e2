"""What Prometheus reads of a node: its jobs, its resources, its links, its process."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from typing import TYPE_CHECKING

import shoal
from shoal.api import views

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.runtime.node import Node

Labels = tuple[tuple[str, str], ...]


class Family:
    """One metric: its name, what it is, and a value for each set of labels."""

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self.name, self.kind, self.help = name, kind, help_text
        self.values: dict[Labels, float] = {}

    def add(self, value: float, **labels: str) -> None:
        """Set the value for these labels."""
        self.values[tuple(labels.items())] = value

    def lines(self) -> Iterator[str]:
        """Return it in the text format of Prometheus, version 0.0.4."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values.items():
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            named = f"{self.name}{{{inside}}}" if inside else self.name
            yield f"{named} {value:.15g}"


def text_of(node: Node, counts: Mapping[str, int]) -> str:
    """Return all metrics; `counts` are those of its links, by what happened."""
    lines: list[str] = []
    for family in _families(node, counts):
        lines += family.lines()
    return "\n".join(lines) + "\n"


def _families(node: Node, counts: Mapping[str, int]) -> Iterator[Family]:
    info = Family("shoal_node_info", "gauge", "Always 1; says which node this is.")
    info.add(1, node=node.id, version=shoal.__version__, shoal=node.membership.shoal)
    yield info
    yield from _job_families(node)
    yield from _resource_families(node)
    links = Family("shoal_link_events_total", "counter", "What happened on links.")
    for name, count in sorted(counts.items()):
        links.add(count, what=name)
    yield links
    asked = Family("shoal_api_calls_open", "gauge", "Calls of other nodes under way.")
    asked.add(len(node.api_calls.answering.book))
    yield asked
    yield from _process_families()


def _job_families(node: Node) -> Iterator[Family]:
    scheduler = node.peer.scheduler
    if scheduler is None:
        return
    book, now = scheduler.book, asyncio.get_running_loop().time()
    jobs = Family("shoal_jobs", "gauge", "Jobs that are kept here, by state.")
    for state, count in sorted(Counter(j.state for j in book.jobs.values()).items()):
        jobs.add(count, state=state)
    yield jobs
    tasks = Family("shoal_tasks", "gauge", "Tasks of these jobs, by state.")
    states = Counter(task.state for task in book.tasks.values())
    for each, count in sorted(states.items()):
        tasks.add(count, state=each)
    yield tasks
    waits = [
        record.submitted_at for record in book.jobs.values() if record.state == "active"
    ]
    oldest = Family("shoal_oldest_job_s", "gauge", "Age of the oldest active job.")
    oldest.add(max(0.0, now - min(waits)) if waits else 0.0)
    yield oldest
    generation = Family("shoal_generation", "counter", "Lives of this scheduler.")
    generation.add(book.generation)
    yield generation


def _resource_families(node: Node) -> Iterator[Family]:
    shown = views.self_view(node)
    total = Family("shoal_resource_total", "gauge", "What this worker lends.")
    free = Family("shoal_resource_free", "gauge", "What of it is free.")
    if shown.worker:
        for family, amounts in ((total, shown.total), (free, shown.free)):
            family.add(amounts.cpu_milli / 1_000, resource="cpu")
            family.add(amounts.memory_bytes, resource="memory_bytes")
            family.add(amounts.disk_bytes, resource="disk_bytes")
            family.add(amounts.gpu_milli / 1_000, resource="gpu")
    yield total
    yield free
    running = Family("shoal_tasks_here", "gauge", "Tasks that run on this worker.")
    running.add(len(node.tasks))
    yield running
    if node.peer.scheduler is not None:
        known = Family("shoal_workers_known", "gauge", "Workers that are known here.")
        known.add(len(node.peer.scheduler.views))
        yield known


def _process_families() -> Iterator[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = Family("process_cpu_seconds_total", "counter", "Processor time of the node.")
    cpu.add(used.ru_utime + used.ru_stime)
    yield cpu
    memory = Family("process_max_resident_bytes", "gauge", "The most memory it had.")
    memory.add(used.ru_maxrss * 1024)
    yield memory
    clock = Family(
        "shoal_clock_s", "gauge", "The node's clock, to compare with others."
    )
    clock.add(time.time())
    yield clock


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
