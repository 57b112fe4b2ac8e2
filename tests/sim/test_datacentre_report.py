"""The report of a data centre: tables, a page, pictures, and the command itself."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from shoal.cli import explained
from shoal.cli.lab.sim import sim
from shoal.errors import ShoalError
from shoal.lab.datacentre.comparison import Comparison, compare
from shoal.lab.datacentre.scenario import convert
from shoal.lab.datacentre.settings import resolve
from shoal.lab.report.formatting import seconds, share, size
from shoal.lab.report.page import page, pictures
from shoal.lab.report.svg import ticks, time_ticks
from shoal.model.spec.documents import Plain

SMALL = ("--spines", "1", "--leaves", "2", "--hosts", "2", "--jobs", "poisson:5")


@cache
def runs() -> Comparison:
    document: Plain = {
        "name": "<Tags> & more",
        "fabric": {"kind": "leaf-spine", "spines": 1, "leaves": 2, "hosts": 2},
        "jobs": {"arrivals": "poisson:5"},
        "policies": ["simple", "nearest"],
        "events": [{"at": "9s", "fail": "leaf0-spine0", "for": "5s"}],
    }
    return compare(*resolve(convert(document), Path()))


def test_the_page_fetches_nothing_and_shows_every_run() -> None:
    html = page(runs())

    assert html.count("<svg") == 2 + 2 * 2
    assert "&lt;Tags&gt; &amp; more" in html
    assert "leaf0-spine0 fails" in html
    links = re.findall(r"(?:src|href|url)\s*[=(][^>]*", html)
    assert links == []
    assert set(re.findall(r"https?://[^\"' <]+", html)) == {
        "http://www.w3.org/2000/svg"
    }


def test_every_picture_is_a_file_that_a_browser_can_read() -> None:
    files = pictures(runs())

    assert sorted(files) == [
        "fabric-nearest.svg",
        "fabric-simple.svg",
        "gossip.svg",
        "jobs-nearest.svg",
        "jobs-simple.svg",
        "over-time.svg",
    ]
    for svg in files.values():
        root = ElementTree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "--hue0" in svg
        assert "nan" not in svg


def test_the_fabric_shows_each_switch_and_each_host() -> None:
    svg = ElementTree.fromstring(pictures(runs())["fabric-simple.svg"])

    told = [title.text or "" for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert {"leaf0", "leaf1", "spine0"} <= set(told)
    assert sum(text.startswith("host") for text in told) == 4
    assert sum("busy" in text for text in told) == 2


def called(*words: str) -> Result:
    return CliRunner().invoke(sim, list(words), catch_exceptions=True)


def test_the_command_prints_tables_and_the_same_json_twice() -> None:
    shown = called(*SMALL, "--policy", "simple,nearest", "--seed", "7")
    first, again = called(*SMALL, "--json", "-q"), called(*SMALL, "--json", "-q")

    assert shown.exit_code == 0
    assert re.search(r"wait p95 .*s .*s", shown.stdout)
    assert "simple" in shown.stdout
    assert "events in" in shown.stderr
    assert first.stdout == again.stdout
    told = json.loads(first.stdout)
    assert told["version"] == 1
    assert told["hosts"] == 4
    assert told["runs"][0]["jobs"] == 5


def test_flags_replace_what_a_scenario_says(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("seed: 1\nfabric: {leaves: 3, spines: 1, hosts: 1}\n")

    out = called(str(path), "--jobs", "burst:2", "--leaves", "2", "--json", "-q")

    told = json.loads(out.stdout)
    assert told["hosts"] == 2
    assert told["runs"][0]["jobs"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fail", "leaf1"), "leaf3@60s+2m"),
        (("--fail", "leaf77@9s"), "$.events[0].fail"),
        (("--policy", "near"), "$.policies[0]"),
        (("--overlay", "tree"), "allowed here: flood"),
        (("no-such.yaml",), "no-such.yaml cannot be read"),
        (("--fabric", "ring"), "leaf-spine, fat-tree"),
    ],
)
def test_mistakes_are_answered_with_what_is_allowed(
    words: tuple[str, ...], said: str
) -> None:
    error = called(*words).exception

    assert isinstance(error, ShoalError)
    assert said in explained(error)


def test_figures_are_written_as_people_read_them() -> None:
    assert [seconds(s) for s in (None, 0.0, 2e-6, 0.0213, 1.5, 312.4, 9_000)] == [
        "never",
        "0 s",
        "2 µs",
        "21 ms",
        "1.5 s",
        "312 s",
        "2.5 h",
    ]
    assert [share(s) for s in (0.0, 0.012, 0.5)] == ["0 %", "1.2 %", "50 %"]
    assert [size(s) for s in (12, 1_530, 83.6e12)] == ["12 B", "1.53 kB", "83.6 TB"]


def test_axes_have_a_few_round_numbers() -> None:
    assert ticks(48, 4) == [0, 20, 40]
    assert time_ticks(950)[1] == (120.0, "2 min")
    assert time_ticks(6)[-1] == (6.0, "6 s")
