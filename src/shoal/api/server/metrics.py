"""Prometheus metrics of a node: its jobs, resources, links and process.

Metrics are computed on request: a collector reads the state of the node, and nothing
is counted in between. Each request uses its own registry, because the default one has
metrics of other libraries.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from typing import TYPE_CHECKING, final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

import shoal
from shoal.api.service import views
from shoal.core.discovery.gossip_overlay import GossipOverlay
from shoal.core.discovery.load_gossip import FAN_OUT
from shoal.core.records import census

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import Metric

    from shoal.runtime.node import Node


def text_of(node: Node, counts: Mapping[str, int]) -> bytes:
    """Return all metrics in the text format; `counts` are events of the links."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(node, counts))
    return generate_latest(registry)


@final
class NodeCollector(Collector):
    """Computes the metrics of one node."""

    def __init__(self, node: Node, counts: Mapping[str, int]) -> None:
        self._node = node
        self._counts = counts

    def describe(self) -> list[Metric]:
        """Return nothing: with one collector, names cannot clash."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current value of every metric."""
        node = self._node
        info = GaugeMetricFamily(
            "shoal_node_info",
            "Always 1; says which node this is.",
            labels=("node", "version", "shoal"),
        )
        info.add_metric((node.id, shoal.__version__, node.membership.shoal), 1)
        yield info
        yield from _of_jobs(node)
        yield from _of_resources(node)
        links = CounterMetricFamily(
            "shoal_link_events", "What happened on links.", labels=("what",)
        )
        for name, count in sorted(self._counts.items()):
            links.add_metric((name,), count)
        yield links
        yield GaugeMetricFamily(
            "shoal_api_calls_open",
            "Calls of other nodes under way.",
            node.forwarded_calls.open,
        )
        yield from _of_gossip(node)
        yield from _of_process()


def _of_jobs(node: Node) -> Iterator[Metric]:
    scheduler = node.peer.scheduler
    if scheduler is None:
        return
    book, now = scheduler.book, asyncio.get_running_loop().time()
    jobs: Counter[str] = Counter(record.state for record in book.jobs.values())
    tasks = Counter[str]()
    for group in book.groups.values():
        tasks.update(census.counts_in(book, group))
    yield _by_state("shoal_jobs", "Jobs that are kept here, by state.", jobs)
    yield _by_state("shoal_tasks", "Tasks of these jobs, by state.", tasks)
    waits = [
        record.submitted_at for record in book.jobs.values() if record.state == "active"
    ]
    oldest_s = max(0.0, now - min(waits)) if waits else 0.0
    yield GaugeMetricFamily(
        "shoal_oldest_job_s", "Age of the oldest active job.", oldest_s
    )
    # A gauge for prometheus_client, which would add `_total` to a counter's name.
    yield GaugeMetricFamily(
        "shoal_generation", "Lives of this scheduler.", book.generation
    )


def _by_state(name: str, help_: str, counts: Counter[str]) -> Metric:
    family = GaugeMetricFamily(name, help_, labels=("state",))
    for state, count in sorted(counts.items()):
        family.add_metric((state,), count)
    return family


def _of_resources(node: Node) -> Iterator[Metric]:
    shown = views.self_view(node)
    labels = ("resource",)
    total = GaugeMetricFamily(
        "shoal_resource_total", "What this worker lends.", labels=labels
    )
    free = GaugeMetricFamily(
        "shoal_resource_free", "What of it is free.", labels=labels
    )
    if shown.worker:
        for family, amounts in ((total, shown.total), (free, shown.free)):
            family.add_metric(("cpu",), amounts.cpu_milli / 1_000)
            family.add_metric(("memory_bytes",), amounts.memory_bytes)
            family.add_metric(("disk_bytes",), amounts.disk_bytes)
            family.add_metric(("gpu",), amounts.gpu_milli / 1_000)
    yield total
    yield free
    yield GaugeMetricFamily(
        "shoal_tasks_here", "Tasks that run on this worker.", len(node.tasks)
    )
    if node.peer.scheduler is not None:
        yield GaugeMetricFamily(
            "shoal_workers_known",
            "Workers that are known here.",
            len(node.peer.scheduler.views),
        )


def _of_gossip(node: Node) -> Iterator[Metric]:
    gossip, overlay = node.peer.gossip, node.peer.find(GossipOverlay)
    if gossip is None or overlay is None:
        return
    yield CounterMetricFamily(
        "shoal_load_news", "What was heard of the load of others.", gossip.news
    )
    yield CounterMetricFamily(
        "shoal_load_messages", "Messages about load that were sent.", gossip.sent
    )
    told = GaugeMetricFamily(
        "shoal_gossip_neighbours", "Peers that are told such news.", labels=("overlay",)
    )
    chosen = FAN_OUT if overlay.chosen is None else len(overlay.chosen)
    told.add_metric((overlay.overlay,), chosen)
    yield told


def _of_process() -> Iterator[Metric]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield CounterMetricFamily(
        "process_cpu_seconds",
        "Processor time of the node.",
        used.ru_utime + used.ru_stime,
    )
    yield GaugeMetricFamily(
        "process_max_resident_bytes", "The most memory it had.", used.ru_maxrss * 1024
    )
    yield GaugeMetricFamily(
        "shoal_clock_s", "The node's clock, to compare with others.", time.time()
    )
