"""Sweeps: what is varied, what is run again, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from click.testing import CliRunner, Result
from reference.answers import ANSWERS, breaches

from shoal.cli.display.printing import VERSION
from shoal.cli.lab.sim import sim
from shoal.errors import ShoalError, SpecError, UsageError
from shoal.lab.datacentre.sweep import CellResult, append_result, cells_of, read_results
from shoal.lab.report.sweep_figures import figures_of, paired_ratios
from shoal.lab.report.sweep_page import (
    heat_map,
    markdown_lines,
    sweep_page,
    unended_lines,
)
from shoal.policy.registry import Registry

TINY: Final[dict[str, Any]] = {
    "fabric": {"kind": "leaf-spine", "spines": 1, "leaves": 2, "hosts": 2},
    "jobs": {"arrivals": "poisson:3", "mix": [{"name": "one", "run": "5s"}]},
    "policies": ["simple", "balanced"],
    "vary": {
        "seed": [1, 2],
        "size": {
            "small": {"fabric": {"leaves": 1}},
            "tree": {"fabric": {"kind": "fat-tree", "k": 2}},
        },
    },
}


def result(policy: str, seed: str, mean_s: float, load: str = "0.5") -> CellResult:
    return CellResult(
        cell=f"{policy}{seed}{load}",
        scenario="s",
        point={"seed": seed, "load": load},
        policy=policy,
        overlay="random",
        jobs=4,
        ended=4,
        failed=0,
        starts=8,
        jct_mean_s=mean_s,
        jct_p99_s=2 * mean_s,
        wait_p95_s=1.0,
        slowdown_mean=1.0,
        utilisation=0.5,
        makespan_s=90.0,
        cross_leaf_share=0.0,
        preemptions=0,
        refusals=2,
        messages=40,
        message_bytes=400,
        events=100,
        cpu_s=0.1,
        history="",
    )


def called(*words: str) -> Result:
    return CliRunner().invoke(sim, ["sweep", *words], catch_exceptions=True)


def test_a_sweep_is_every_combination_of_its_axes_and_policies() -> None:
    cells = cells_of(TINY, Path())

    assert len(cells) == len({cell.id for cell in cells}) == 2 * 2 * 2
    assert cells[0].point == {"seed": "1", "size": "small"}
    assert cells[0].document["fabric"] == {**TINY["fabric"], "leaves": 1}
    assert cells[-1].document["fabric"] == {"kind": "fat-tree", "k": 2}
    again = cells_of({**TINY, "policies": ["all"]}, Path())
    assert [cell.policy for cell in again[: len(Registry().names())]] == (
        Registry().names()
    )
    assert {cell.id for cell in cells} < {cell.id for cell in again}


def test_a_cell_is_another_if_anything_that_it_depends_on_is() -> None:
    jobs = {**TINY["jobs"], "load": 0.71}

    changed = cells_of({**TINY, "jobs": jobs}, Path())

    assert not {c.id for c in changed} & {c.id for c in cells_of(TINY, Path())}


@pytest.mark.parametrize(
    ("vary", "where"),
    [
        (7, "$.vary"),
        ({"seed": []}, "$.vary.seed"),
        ({"size": {"small": 3}}, "$.vary.size"),
        ({"jobs.loud": [1]}, "$.jobs"),
    ],
)
def test_what_cannot_be_varied_is_refused_with_its_place(
    vary: object, where: str
) -> None:
    with pytest.raises(SpecError) as caught:
        cells_of({**TINY, "vary": vary}, Path())
    assert caught.value.what.count(f"at `{where}`") == 1
    assert caught.value.hint


def test_whoever_misspells_the_axes_hears_how_they_are_called() -> None:
    with pytest.raises(SpecError, match="unknown field 'vray'") as caught:
        cells_of({**TINY, "vray": {"seed": [1]}}, Path())
    assert caught.value.hint.endswith("until; and vary")


def test_results_survive_a_stop_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, result("a", "1", 10.0))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"cell": "b1", "scen')

    assert list(read_results(path)) == ["a10.5"]
    append_result(path, result("b", "1", 20.0))

    assert list(read_results(path)) == ["a10.5", "b10.5"]
    path.write_bytes(b"no\n" + whole)
    with pytest.raises(UsageError, match="no file of results"):
        read_results(path)


def test_policies_are_compared_with_the_best_other_over_seeds() -> None:
    results = [
        result("a", "1", 10.0),
        result("a", "2", 30.0),
        result("b", "1", 20.0),
        result("b", "2", 20.0),
        result("a", "1", 30.0, "0.9"),
        result("b", "1", 20.0, "0.9"),
    ]

    figures = figures_of(results)

    assert figures.axes == ("load",)
    assert figures.columns == ("b", "a")
    first, second = figures.summaries
    assert first.wins["jct_mean_s"] == 2  # one of them is a tie
    assert second.wins["jct_mean_s"] == 1
    assert second.worst["jct_mean_s"] == pytest.approx(1.5)
    assert first.refusals_per_start == pytest.approx(0.25)
    assert first.messages_per_job == pytest.approx(10)
    html = sweep_page(figures, "<sweep>")
    assert "&lt;sweep&gt;" in html
    assert "1.50" in heat_map(figures, "jct_mean_s")
    assert "**20.0 s**" in markdown_lines(figures, "jct_mean_s")


def test_pairs_with_the_same_luck_tell_a_small_difference_from_chance() -> None:
    luck = [10.0, 80.0, 25.0, 40.0, 12.0, 66.0, 31.0, 19.0, 55.0]
    results: list[CellResult] = []
    for seed, base_s in enumerate(luck):
        results += [
            result("a", str(seed), base_s),
            result("b", str(seed), base_s * 1.1),
            result("c", str(seed), base_s * (1.5 if seed % 2 else 0.7)),
        ]

    against = {one.other: one for one in paired_ratios(results, "a", "jct_mean_s")}

    assert against["b"].pairs == len(luck)
    assert against["b"].ratio == pytest.approx(1 / 1.1)
    assert against["b"].high < 1, "it is better for sure"
    assert against["c"].low < 1 < against["c"].high, "nobody can say"
    assert paired_ratios(results[:6], "a", "jct_mean_s") == [], "too few"


def test_the_command_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    scenario = tmp_path / "tiny.json"
    scenario.write_text(json.dumps({**TINY, "vary": {}}))
    kept = tmp_path / "kept.jsonl"
    words = [str(scenario), "--results", str(kept), "--processes", "1", "--json"]

    first = called(*words, "--vary", "seed=1..2")
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[1:]) + "\n")
    again = called(*words, "--vary", "seed=1..2")

    assert first.exit_code == again.exit_code == 0
    assert "3 of 4 cells are in" in again.stderr
    before, after = json.loads(first.stdout), json.loads(again.stdout)
    assert before.pop("version") == VERSION
    assert breaches(ANSWERS["sim sweep"], before) == []
    histories = [cell["history"] for cell in before["cells"]]
    assert [cell["history"] for cell in after["cells"]] == histories
    assert len(kept.read_text().splitlines()) == 4


def test_jobs_that_did_not_end_are_told_with_a_reason() -> None:
    stuck = msgspec.structs.replace(
        result("whims", "1", 90.0), ended=1, why_unended="policy whims <raised>"
    )
    figures = figures_of([result("fgd", "1", 9.0), stuck])

    said = "whims: 3 jobs did not end; one of them: policy whims <raised>"
    assert unended_lines(figures) == [said]
    assert said.replace("<raised>", "&lt;raised&gt;") in sweep_page(figures, "any")


@pytest.mark.parametrize("text", ["seed", "=1", "seed=", "seed=5..1", "seed=1..x"])
def test_a_wrong_axis_is_refused(text: str) -> None:
    refused = called("--vary", text)

    assert isinstance(refused.exception, ShoalError)
    assert refused.exception.hint
