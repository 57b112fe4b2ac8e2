"""Data centres in virtual time: small fabrics, whole runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from shoal.lab.datacentre.comparison import Comparison, compare
from shoal.lab.datacentre.results import RunResult
from shoal.lab.datacentre.scenario import convert
from shoal.lab.datacentre.settings import resolve
from shoal.lab.report.formatting import unended
from shoal.model.ids import NodeId
from shoal.model.spec.documents import Plain
from shoal.policy.table.link_load import LinkLoad

FABRIC: dict[str, Plain] = {"kind": "leaf-spine", "spines": 2, "leaves": 2, "hosts": 2}


def simulated(**document: Plain) -> Comparison:
    whole: Plain = {"fabric": dict(FABRIC), "seed": 7, **document}
    return compare(*resolve(convert(whole), Path()))


def mix(*kinds: dict[str, Plain], jobs: str = "every:8", over: str = "40s") -> Plain:
    return {"arrivals": jobs, "over": over, "mix": list(kinds)}


def only(comparison: Comparison) -> RunResult:
    (run,) = comparison.runs
    return run.result


@cache
def default_runs() -> Comparison:
    return simulated(
        jobs={"arrivals": "poisson:12", "load": 0.6}, policies=["balanced", "nearest"]
    )


def test_every_job_of_a_calm_data_centre_ends() -> None:
    for run in default_runs().runs:
        assert run.result.ended == run.result.jobs == 12
        assert run.result.failed == 0
        assert run.result.slowdown_mean >= 1
        assert 0 < run.result.utilisation <= 1


def test_the_same_seed_gives_the_same_result_and_another_seed_another() -> None:
    jobs: Plain = {"arrivals": "poisson:6"}

    first, again = only(simulated(jobs=jobs)), only(simulated(jobs=jobs))
    other = only(simulated(jobs=jobs, seed=8))

    assert first == again
    assert first.history != other.history


def test_a_job_runs_where_it_was_submitted_if_it_fits() -> None:
    kind: dict[str, Plain] = {"name": "small", "run": "5s", "stage": "1GB"}

    near = simulated(jobs=mix(kind), policies=["nearest"])

    homes = {drawn_job.job: drawn_job.host for drawn_job in near.drawn.jobs}
    names = [near.fabric.nodes[host].name for host in near.fabric.hosts]
    for bar in near.runs[0].bars:
        assert names[bar.host] == homes[bar.job]
    assert only(near).moved_bytes == 0, "what is local needs no fetching"


def test_what_does_not_fit_here_goes_to_the_same_leaf_first() -> None:
    kind: dict[str, Plain] = {"name": "whole", "gpu": 4, "run": "30s"}
    jobs: Plain = {
        "arrivals": "burst:2",
        "submit_to": ["host2"],
        "mix": [kind],
    }

    near = simulated(jobs=jobs)

    hosts = sorted(bar.host for bar in near.runs[0].bars)
    assert hosts == [2, 3]
    assert only(near).wait_p95_s < 2.0, "gossip told of the neighbour"


def test_a_gang_across_leaves_takes_longer_over_narrow_uplinks() -> None:
    kind: dict[str, Plain] = {
        "name": "gang",
        "tasks": 2,
        "gang": True,
        "gpu": 4,
        "run": "20s",
        "allreduce": "1GB",
    }
    narrow = dict(FABRIC) | {"oversubscription": 8}
    jobs = mix(kind, jobs="burst:1")

    apart = simulated(fabric=narrow, jobs=jobs, policies=["simple"])
    kind["same_leaf"] = "require"
    together = simulated(fabric=narrow, jobs=mix(kind, jobs="burst:1"))

    assert only(together).cross_leaf_share == 0
    # 1 GB both ways in each of 80 steps: 86 ms of each step over a cable of
    # 100 Gbit/s, on top of 250 ms of computing.
    assert only(together).jct_mean_s == pytest.approx(20 * 336 / 250, rel=0.05)
    if only(apart).cross_leaf_share > 0:
        assert only(apart).jct_mean_s > 1.5 * only(together).jct_mean_s


def test_two_fetches_over_one_cable_take_twice_as_long() -> None:
    kind: dict[str, Plain] = {"name": "fetch", "gpu": 4, "run": "1s", "stage": "100GB"}
    slow: Plain = {
        "kind": "leaf-spine",
        "spines": 1,
        "leaves": 1,
        "hosts": 3,
        "host_link": {"bandwidth": "100Gbps"},
    }

    def fetching(jobs: int) -> float:
        spec: Plain = {
            "arrivals": f"burst:{jobs}",
            "submit_to": ["host0"],
            "mix": [kind],
        }
        return only(simulated(fabric=slow, jobs=spec)).makespan_s

    # The first job runs on host0 itself; the others fetch over its one cable.
    one, two = fetching(2), fetching(3)
    alone_s = 100 * 2**30 / 12.5e9
    assert one - 5 == pytest.approx(alone_s + 1, rel=0.2)
    assert two - one == pytest.approx(alone_s, rel=0.2)


def test_a_leaf_that_fails_and_comes_back_costs_time_and_no_job() -> None:
    jobs: Plain = {"arrivals": "poisson:12", "load": 0.6}

    torn = only(
        simulated(
            jobs=jobs,
            events=[{"at": "15s", "fail": "leaf1", "for": "40s"}],
            policies=["nearest"],
        )
    )

    assert torn.ended == torn.jobs
    calm = default_runs().runs[1].result
    assert torn.policy == calm.policy
    assert torn.history != calm.history


def test_a_job_that_cannot_end_is_told_with_the_reason() -> None:
    wide: Plain = [{"name": "wide", "tasks": 4, "gang": True, "gpu": 4, "run": "5s"}]
    jobs: Plain = {"arrivals": "burst:1", "submit_to": ["host3"], "mix": wide}

    result = only(simulated(jobs=jobs, events=[{"fail": "leaf1", "at": "1s"}]))

    assert result.ended == 0
    assert [(one.job, one.why) for one in result.unended] == [
        ("wide-0", "host3, where it was submitted, is cut off")
    ]
    assert unended([result]) == [
        "compact: 1 did not end: wide-0 (host3, where it was submitted, is cut off)"
    ]


def test_a_host_that_joins_is_found_and_one_that_leaves_is_not_used() -> None:
    kind: dict[str, Plain] = {"name": "whole", "gpu": 4, "run": "20s"}
    jobs: Plain = {"arrivals": "every:12", "over": "60s", "mix": [kind]}

    moved = simulated(
        jobs=jobs,
        events=[{"at": "30s", "join": "host3"}, {"at": "40s", "leave": "host0"}],
    )

    assert only(moved).ended == 12
    bars = moved.runs[0].bars
    assert min(bar.began for bar in bars if bar.host == 3) > 30
    assert max(bar.began for bar in bars if bar.host == 0) < 40


def test_churn_loses_no_job() -> None:
    kind: dict[str, Plain] = {"name": "small", "run": "5s..20s"}

    churned = only(
        simulated(jobs=mix(kind, jobs="every:10"), churn={"every": "15s", "down": "5s"})
    )

    assert churned.ended == churned.jobs


def test_urgent_jobs_displace_others_and_nobody_fails_of_it() -> None:
    kinds: list[dict[str, Plain]] = [
        {"name": "long", "weight": 1, "gpu": 4, "run": "60s"},
        {"name": "urgent", "weight": 1, "gpu": 4, "run": "5s", "priority": 50},
    ]
    kinds[1]["preempt"] = True

    result = only(simulated(jobs=mix(*kinds, jobs="every:16", over="30s")))

    assert result.preemptions > 0
    assert result.failed == 0
    assert result.ended == 16


@pytest.mark.parametrize("overlay", ["flood", "random", "mst", "nearest"])
def test_news_reaches_everybody_whatever_the_overlay(overlay: str) -> None:
    kind: dict[str, Plain] = {"name": "small", "run": "5s..20s"}
    wide: Plain = {"kind": "leaf-spine", "spines": 2, "leaves": 4, "hosts": 4}

    gossip = only(
        simulated(fabric=wide, jobs=mix(kind), gossip={"overlay": overlay})
    ).gossip

    assert gossip.missed == 0
    assert gossip.converged_p95_s is not None
    assert gossip.converged_p95_s < 10
    assert gossip.curve_share[-1] > 0.9
    assert gossip.stale_share < 0.2


def test_news_counts_as_heard_without_those_that_are_cut_off() -> None:
    jobs: Plain = {"arrivals": "poisson:30", "load": 0.6, "submit_to": ["host0"]}

    torn = only(simulated(jobs=jobs, events=[{"at": "2s", "fail": "leaf1"}]))

    assert torn.gossip.probes > torn.gossip.missed == 0
    assert torn.gossip.stale_share < 0.5


def test_a_tree_says_everything_once_and_flooding_many_times() -> None:
    kind: dict[str, Plain] = {"name": "small", "run": "5s..20s"}
    wide: Plain = {"kind": "leaf-spine", "spines": 2, "leaves": 4, "hosts": 4}

    runs = simulated(
        fabric=wide, jobs=mix(kind), gossip={"overlay": ["flood", "mst"]}
    ).runs

    flood, tree = (run.result.gossip for run in runs)
    assert flood.bytes > 2 * tree.bytes
    assert flood.converged_p50_s is not None
    assert tree.converged_p50_s is not None
    assert flood.converged_p50_s <= tree.converged_p50_s


def test_schedulers_hear_which_links_the_gangs_of_others_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: dict[str, set[str]] = {}
    tell = LinkLoad.tell

    def noted(links: LinkLoad, node: NodeId, marks: tuple[str, ...]) -> None:
        for mark in marks:
            heard.setdefault(mark, set()).add(node)
        tell(links, node, marks)

    monkeypatch.setattr(LinkLoad, "tell", noted)
    wide: dict[str, Plain] = {
        "name": "wide",
        "tasks": 3,
        "gang": True,
        "gpu": 4,
        "run": "30s",
        "allreduce": "1MB",
    }
    alone: dict[str, Plain] = {**wide, "name": "alone", "gpu": 1}

    crossing = simulated(jobs=mix(wide, jobs="burst:1"), policies=["compact"])

    places = {crossing.fabric.nodes[host].name for host in crossing.fabric.hosts}
    [told] = heard.values()
    assert len(told) == 3
    assert told < places
    heard.clear()
    simulated(jobs=mix(alone, jobs="burst:1"), policies=["compact"])
    assert not heard, "it talks over no link"
