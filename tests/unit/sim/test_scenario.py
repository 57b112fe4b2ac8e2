"""Scenarios as people write them, and what is said about mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from shoal.errors import SpecError
from shoal.lab.datacentre.jobs import draw_jobs
from shoal.lab.datacentre.scenario import convert, read_scenario
from shoal.lab.datacentre.settings import ScenarioSettings, parse_bandwidth, resolve
from shoal.lab.datacentre.sweep import cells_of
from shoal.model.ids import NodeId
from shoal.model.spec.documents import Plain
from shoal.topology.fabric import Fabric
from shoal.topology.routes import Routes

EXAMPLES = sorted(Path("examples/sim").glob("*.yaml"))


def settled(document: Plain, folder: Path = Path()) -> tuple[ScenarioSettings, Fabric]:
    return resolve(convert(document), folder)


def test_an_empty_scenario_is_a_scenario() -> None:
    settings, fabric = settled({})

    assert len(fabric.hosts) == 32
    assert settings.jobs == 200
    assert settings.policies == ("compact",)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_read(path: Path) -> None:
    document = read_scenario(path.read_bytes())
    assert isinstance(document, dict)
    if "vary" in document:
        assert len(cells_of(document, path.parent)) > 1
        return
    settings, fabric = settled(document, path.parent)

    assert settings.name != "a simulated shoal"
    assert len(fabric.hosts) > 1


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ([1], "$", "name, seed, fabric"),
        ({"fabric": {"kind": "ring"}}, "$.fabric.kind", "leaf-spine, fat-tree, wan"),
        ({"fabric": {"leafs": 3}}, "$.fabric", "leaves"),
        ({"fabric": {"leaves": 0}}, "$.fabric.leaves", "from 1 to 10000"),
        ({"fabric": {"kind": "fat-tree", "k": 3}}, "$.fabric", "k = 4"),
        (
            {"fabric": {"uplink": {"bandwidth": "10"}}},
            "$.fabric.uplink.bandwidth",
            "25Gbps",
        ),
        ({"jobs": {"arrivals": "poison:3"}}, "$.jobs.arrivals", "poisson:200"),
        ({"jobs": {"mix": [{"name": "a", "run": "5"}]}}, "$.jobs.mix[0].run", "90s"),
        ({"jobs": {"mix": [{"name": "a", "gpu": 9}]}}, "$.jobs.mix[0]", "ask for less"),
        ({"jobs": {"submit_to": ["host99"]}}, "$.jobs.submit_to[0]", "any, one"),
        ({"policies": ["simple", "near"]}, "$.policies[1]", "nearest"),
        ({"gossip": {"overlay": "tree"}}, "$.gossip.overlay", "flood, mst, nearest"),
        ({"events": [{"at": "9s", "fail": "leaf9"}]}, "$.events[0].fail", "leaf0-sp"),
        ({"events": [{"at": "9s"}]}, "$.events[0]", "one of fail, join, leave"),
        ({"events": [{"at": "9s", "join": "leaf1"}]}, "$.events[0].join", "a host"),
        ({"fabric": {"kind": "file", "file": "no.json"}}, "$.fabric.file", "name"),
        ({"fabric": {"leaves": 9_999, "hosts": 9}}, "$.fabric", "sim traces"),
        ({"loss": 2}, "$.loss", "from 0 to 1"),
    ],
)
def test_a_mistake_is_answered_with_its_path_and_what_is_allowed(
    document: Plain, path: str, words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        settled(document)

    assert caught.value.path == path
    assert words in caught.value.hint


def test_any_graph_can_be_read_from_json_and_graphml(tmp_path: Path) -> None:
    nodes = [{"id": "s", "kind": "switch"}, {"id": "a"}, {"id": "b"}]
    links = [
        {"source": "a", "target": "s", "latency": "5us", "bandwidth": "10Gbps"},
        {"source": "s", "target": "b"},
    ]
    (tmp_path / "g.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    (tmp_path / "g.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="l" for="edge" attr.name="latency" attr.type="string"/>'
        '<key id="w" for="edge" attr.name="bandwidth" attr.type="string"/>'
        '<graph edgedefault="undirected"><node id="a"/><node id="s"/><node id="b"/>'
        '<edge source="a" target="s"><data key="l">5us</data>'
        '<data key="w">10Gbps</data></edge><edge source="s" target="b"/>'
        "</graph></graphml>"
    )

    for name in ("g.json", "g.graphml"):
        document: Plain = {"fabric": {"kind": "file", "file": name}}
        _, fabric = settled(document, tmp_path)

        assert sorted(fabric.nodes[host].name for host in fabric.hosts) == ["a", "b"]
        a, b = fabric.index["a"], fabric.index["b"]
        assert Routes(fabric).distance(a, b) == 5_000 + 1_000
        assert fabric.links[0].bandwidth_bps == 10_000_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "no object"),
        ('{"nodes": [{"name": "a"}]}', "nodes[0] has no id"),
        ('{"nodes": [], "links": 3}', "links is no list"),
        ('{"nodes": [{"id": "a", "kind": "rack"}], "links": []}', "kind 'rack'"),
        ("{", "line 1"),
    ],
)
def test_a_graph_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "g.json").write_text(text)

    with pytest.raises(SpecError) as caught:
        settled({"fabric": {"kind": "file", "file": "g.json"}}, tmp_path)

    assert words in caught.value.because


def test_bandwidths_are_in_bits() -> None:
    assert parse_bandwidth("25Gbps") == 25_000_000_000
    assert parse_bandwidth("1.5 Tbit/s") == 1_500_000_000_000


def test_jobs_load_the_hosts_as_asked() -> None:
    mix: Plain = [{"name": "j", "run": "60s", "gpu": 2}]
    jobs: Plain = {"arrivals": "every:64", "load": 0.5, "mix": mix}
    settings, fabric = settled({"jobs": jobs})
    hosts = [NodeId(fabric.nodes[host].name) for host in fabric.hosts]

    drawn = draw_jobs(settings, hosts, Random(7))

    span_s = 64 * 60.0 * 2 / (0.5 * 32 * 4)
    assert drawn.last_s == pytest.approx(5.0 + span_s * 63 / 64)
    assert {drawn_job.run_s for drawn_job in drawn.jobs} == {60.0}
