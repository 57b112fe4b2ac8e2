"""What a simulated crowd costs and how well it does, as plain figures."""

from __future__ import annotations

import resource
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from shoal.lab.scale.crowd import BOOT_S, Crowd
from shoal.model.resources import WHOLE_GPU_MILLI

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.lab.scale.host import ScaleHost
    from shoal.protocol.messages import Rumour

OBSERVERS: Final = 64
SUBJECTS: Final = 64
STEP_S: Final = 1.0
PING_BYTES: Final = 200
PING_EVERY_S: Final = 10.0
"""An idle link asks so often; question and answer together have so many bytes."""


def measure(
    nodes: int,
    seed: int,
    *,
    warm_s: float,
    span_s: float,
    lean: bool = False,
    progress: Callable[[float], None],
) -> dict[str, Any]:
    """Simulate a shoal, and return what it did during `span_s` after its start."""
    began, began_cpu = time.perf_counter(), time.process_time()
    crowd = Crowd(nodes, seed, lean=lean)
    starts_at = BOOT_S + warm_s
    ends_at = starts_at + span_s
    _go(crowd, starts_at, ends_at, progress)
    crowd.meter.reset()
    crowd.directory.reset()
    arrivals = crowd.arrivals
    _go(crowd, ends_at, ends_at, progress)
    cpu_s = time.process_time() - began_cpu
    return {
        "benchmark": "scale",
        "nodes": nodes,
        "seed": seed,
        "lean": lean,
        "virtual_s": ends_at,
        "counted_s": span_s,
        "arrivals_per_s": round((crowd.arrivals - arrivals) / span_s, 2),
        **_traffic(crowd, span_s),
        **_jobs(crowd, starts_at),
        **_gossip(crowd),
        **_busiest(crowd, span_s),
        "events": crowd.events,
        "events_per_cpu_s": round(crowd.events / cpu_s),
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(time.perf_counter() - began, 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def _go(
    crowd: Crowd, until_s: float, ends_at: float, progress: Callable[[float], None]
) -> None:
    while crowd.agenda.now < until_s:
        crowd.run(min(until_s, crowd.agenda.now + STEP_S))
        progress(crowd.agenda.now / ends_at)


def _traffic(crowd: Crowd, span_s: float) -> dict[str, Any]:
    """Return what all nodes sent, for each of them and second."""
    nodes = len(crowd.hosts)
    per = 1.0 / (span_s * nodes)
    links = sum(len(host.links) for host in crowd.hosts) / nodes
    pings = 2 * links / PING_EVERY_S
    routed = crowd.directory.messages(nodes) * per
    messages = sum(crowd.meter.messages.values()) * per
    sent = sum(crowd.meter.bytes.values()) * per
    kinds = {
        kind: [round(count * per, 4), round(crowd.meter.bytes[kind] * per, 1)]
        for kind, count in crowd.meter.messages.most_common(8)
    }
    return {
        "messages_per_node_s": round(messages, 3),
        "bytes_per_node_s": round(sent),
        "pings_per_node_s": round(pings, 2),
        "ping_bytes_per_node_s": round(links * PING_BYTES / PING_EVERY_S),
        "dht_messages_per_node_s": round(routed, 3),
        "links_mean": round(links, 1),
        "links_max": max(len(host.links) for host in crowd.hosts),
        "kinds": kinds,
    }


def _jobs(crowd: Crowd, since: float) -> dict[str, Any]:
    """Return how long jobs took to be placed that came after `since`."""
    late = crowd.agenda.now - 10.0
    jobs = [job for job in crowd.jobs.values() if since <= job.began <= late]
    found = sorted(job.found - job.began for job in jobs if job.found >= job.began)
    won = sorted(job.committed - job.began for job in jobs if job.committed > job.began)
    return {
        "jobs": len(jobs),
        "jobs_committed": len(won),
        "find_s_p50": _rank(found, 0.5),
        "find_s_p95": _rank(found, 0.95),
        "commit_s_p50": _rank(won, 0.5),
        "commit_s_p95": _rank(won, 0.95),
        "commit_s_max": _rank(won, 1.0),
    }


def _gossip(crowd: Crowd) -> dict[str, Any]:
    """Compare what some nodes believe of others with the truth."""
    up = [host for host in crowd.hosts if host.machine is not None]
    seen = wrong = gone = 0
    ages: list[float] = []
    known_of: list[int] = []
    for host in crowd.rng.sample(up, min(OBSERVERS, len(up))):
        assert host.machine is not None
        assert host.machine.gossip is not None
        known = list(host.machine.gossip.known.values())
        known_of.append(len(known))
        for rumour in crowd.rng.sample(known, min(SUBJECTS, len(known))):
            seen += 1
            subject = crowd.by_id.get(rumour.node)
            if subject is None or not subject.up:
                gone += 1
            elif not _is_true(rumour, subject):
                wrong += 1
                ages.append(crowd.agenda.now - crowd.changed_at[subject.place])
    return {
        "known_mean": round(sum(known_of) / max(1, len(known_of))),
        "rumours_wrong": round(wrong / max(1, seen), 4),
        "rumours_of_gone": round(gone / max(1, seen), 4),
        "wrong_age_s_p50": _rank(sorted(ages), 0.5),
    }


def _is_true(rumour: Rumour, subject: ScaleHost) -> bool:
    assert subject.machine is not None
    assert subject.machine.worker is not None
    load = subject.machine.worker.load
    return (
        rumour.cpu_milli == load.cpu_milli
        and rumour.memory_bytes == load.memory_bytes
        and rumour.gpus == load.gpu_milli.count(WHOLE_GPU_MILLI)
    )


def _busiest(crowd: Crowd, span_s: float) -> dict[str, Any]:
    """Return what the busiest gate, key of the DHT and other node have to do."""
    handled = crowd.meter.handled
    gates = [host for host in crowd.hosts if host.is_gate]
    others = [host for host in crowd.hosts if not host.is_gate]
    busy = [handled[host.place] / span_s for host in others]
    visits = crowd.directory.visits
    return {
        "gate_messages_s_max": round(max(handled[g.place] for g in gates) / span_s, 2),
        "gate_messages_s_p50": round(
            median(handled[g.place] for g in gates) / span_s, 2
        ),
        "gate_links_max": max(len(gate.links) for gate in gates),
        "node_messages_s_max": round(max(busy), 2),
        "dht_key_visits_s_max": round(max(visits.values(), default=0) / span_s, 3),
        "dht_keys_busiest": [key for key, _ in visits.most_common(3)],
    }


def _rank(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)
