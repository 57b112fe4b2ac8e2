"""Hosts of different kinds in one fabric, and services on them."""

from __future__ import annotations

from math import factorial, log
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from shoal.errors import SpecError
from shoal.lab.datacentre.comparison import Comparison, compare
from shoal.lab.datacentre.scenario import convert
from shoal.lab.datacentre.services import Replica, ServiceKind, serve
from shoal.lab.datacentre.settings import resolve
from shoal.lab.report.table import tables
from shoal.model.resources import GIB, Profile
from shoal.model.spec.documents import Plain

FABRIC: Plain = {"kind": "leaf-spine", "spines": 2, "leaves": 1, "hosts": 4}
SLOW: dict[str, Plain] = {"name": "slow", "count": 2, "gpu": "T4:16GB:1"}
FAST: dict[str, Plain] = {
    "name": "fast",
    "count": 1,
    "gpu": "A100:80GB:2",
    "speed": 4,
    "link": {"bandwidth": "400Gbps"},
}
KINDS: list[Plain] = [SLOW, FAST]
TOO_MANY: Plain = [{**SLOW, "count": 5}]
TOO_SLOW: Plain = [{**SLOW, "speed": 0}]
NO_GPU: Plain = [{**SLOW, "gpu": "T4:no"}]
NO_SPEED: Plain = [{**SLOW, "link": {"bandwidth": "fast"}}]
SERVICES: Plain = [{"name": "s", "replicas": 5}]
NO_RATE: Plain = [{"name": "s", "rate": 0}]


def simulated(**document: Any) -> Comparison:  # noqa: ANN401 - Of any field.
    host: Plain = {"gpu": 0}
    whole: dict[str, Plain] = {"fabric": FABRIC, "hosts": KINDS, "host": host}
    whole.update(document)
    return compare(*resolve(convert(whole), Path()))


def burst(**kind: Any) -> Plain:  # noqa: ANN401 - Of any field.
    one: dict[str, Plain] = {"name": "one", "run": "60s"}
    one.update(kind)
    return {"arrivals": "burst:1", "mix": [one]}


def test_kinds_are_dealt_in_order_and_the_rest_is_as_host_says() -> None:
    whole: Plain = {
        "fabric": FABRIC,
        "hosts": KINDS,
        "host": {"gpu": 0},
        "jobs": burst(),
    }
    settings, fabric = resolve(convert(whole), Path())
    hosts = settings.hosts

    assert [hosts[place].name for place in range(4)] == ["slow", "slow", "fast", "host"]
    assert [hosts[place].devices for place in range(4)] == [1, 1, 2, 0]
    assert hosts[2].capacity.devices[0].memory_bytes == 80 * GIB
    assert (hosts.widths, hosts.work) == (4, 1 + 1 + 2 * 4)
    speeds = {
        link.a if link.a.startswith("host") else link.b: link.bandwidth_bps
        for link in fabric.links
        if "host" in link.name
    }
    assert speeds["host2"] == 400e9
    assert speeds["host1"] == speeds["host3"] == 100e9


@pytest.mark.parametrize(
    ("kind", "took_s"),
    [
        ({"gpu": "T4"}, 60.0),
        ({"gpu": "A100"}, 15.0),
        ({"gpu": "A100", "speeds": {"A100": 10}}, 6.0),
        # Its slowest rank waits for nobody, and all wait for it.
        ({"gpu": "A100", "tasks": 2, "gang": True}, 15.0),
        ({"gpu": 1, "tasks": 4, "gang": True}, 60.0),
    ],
    ids=str,
)
def test_a_task_takes_as_long_as_its_devices_are_slow(
    kind: dict[str, Plain], took_s: float
) -> None:
    (run,) = simulated(jobs=burst(**kind)).runs

    assert run.result.ended == 1
    assert run.result.jct_mean_s == pytest.approx(took_s, abs=1.5)


def test_use_is_of_the_devices_that_there_are() -> None:
    (run,) = simulated(jobs=burst(gpu="A100:2")).runs

    assert run.result.hosts_used[2] == pytest.approx(0.7, abs=0.3)
    assert run.result.hosts_used[:2] == (0.0, 0.0)
    assert run.result.utilisation == pytest.approx(run.result.hosts_used[2] / 2)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"hosts": TOO_MANY}, "$.hosts"),
        ({"jobs": burst(gpu="H100")}, "$.jobs.mix[0]"),
        ({"services": SERVICES, "jobs": burst()}, "$.services[0]"),
        ({"services": NO_RATE}, "$.services[0].rate"),
        ({"hosts": TOO_SLOW}, "$.hosts[0].speed"),
        ({"hosts": NO_GPU}, "$.hosts[0].gpu"),
        ({"hosts": NO_SPEED}, "bandwidth"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_place(
    document: dict[str, Plain], path: str
) -> None:
    with pytest.raises(SpecError) as caught:
        simulated(**document)

    assert path in str(caught.value.path)


def test_a_service_runs_beside_jobs_and_is_reported() -> None:
    service: Plain = {"name": "chat", "gpu": "A100", "replicas": 2, "run": "2m"}

    found = simulated(jobs=burst(gpu="T4"), services=[service])

    (run,) = found.runs
    (chat,) = run.result.services
    assert run.result.jobs == run.result.ended == 2
    assert chat.requests == pytest.approx(120 * 10, rel=0.15)
    assert chat.answered == chat.requests - chat.lost
    assert "chat: requests" in list(tables(found)[1].columns[0].cells)


def test_requests_are_lost_while_no_replica_runs() -> None:
    service: Plain = {"name": "chat", "gpu": "A100:2", "run": "2m", "rate": 20}
    events: Plain = [{"at": "45s", "fail": "host2", "for": "30s"}]

    (run,) = simulated(jobs=burst(gpu="T4"), services=[service], events=events).runs

    (chat,) = run.result.services
    assert 0.1 < chat.lost / chat.requests < 0.7


# Services against what queueing theory says.

PLAIN = ServiceKind(
    name="s",
    replicas=1,
    profile=Profile(),
    run_s=2_000.0,
    rate=8.0,
    peak=1.0,
    takes_s=0.1,
    at_once=1,
    queue=1_000,
    within_s=1.0,
    priority=0,
    preempt=False,
)
ALL_THE_TIME = Replica(0.0, 1e6, 1.0)


def test_latency_is_that_of_a_queue_with_one_server() -> None:
    found = serve(PLAIN, [ALL_THE_TIME], 0.0, Random(1))

    # M/M/1: latency is exponential with the rate at which there is room left.
    assert found.latency_p50_s == pytest.approx(log(2) / (10 - 8), rel=0.15)
    assert found.busy * 1e6 / 2_000 == pytest.approx(0.8, rel=0.05)
    assert found.refused == found.lost == 0


def test_without_a_queue_requests_are_refused_as_erlang_says() -> None:
    kind = msgspec.structs.replace(PLAIN, at_once=4, queue=0, rate=30.0)

    found = serve(kind, [ALL_THE_TIME], 0.0, Random(1))

    load = 30 * 0.1
    parts = [load**n / factorial(n) for n in range(5)]
    assert found.refused / found.requests == pytest.approx(
        parts[4] / sum(parts), rel=0.05
    )


def test_a_faster_host_answers_sooner_and_a_peak_overloads() -> None:
    fast = serve(PLAIN, [Replica(0.0, 1e6, 4.0)], 0.0, Random(1))
    calm = serve(
        msgspec.structs.replace(PLAIN, queue=8), [ALL_THE_TIME], 0.0, Random(1)
    )
    kind = msgspec.structs.replace(PLAIN, queue=8, peak=9.0)
    peaky = serve(kind, [ALL_THE_TIME], 0.0, Random(1))

    assert fast.latency_p50_s == pytest.approx(log(2) / (40 - 8), rel=0.1)
    assert peaky.requests == pytest.approx(calm.requests, rel=0.05)
    assert peaky.refused > 2 * calm.refused
