"""What others published comes out again; and what is wrong with records is told."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.traces.test_readers import CLUSTER, HOSTS, PODS, SWF, TRAINING, written

from shoal.cli import exit_code_of, explained
from shoal.cli.lab.sim import sim
from shoal.errors import ShoalError, UsageError
from shoal.lab.replay.cluster_fill import fill, policy_named, typical_pods
from shoal.lab.replay.published_results import (
    EXPECTED,
    PublishedResult,
    default_folder,
    read_records,
)
from shoal.lab.replay.reproduction import (
    figures_of,
    parts_of,
    results_of,
    wanted_of,
)
from shoal.lab.traces import openb
from shoal.lab.traces.values import Pod, TraceHost

BATCH: dict[str, Any] = {
    "table": "B",
    "trace": "a.swf",
    "policy": "FCFS",
    "metric": "mean_bounded_slowdown",
    # By id, the last job comes when it is seen behind one that came 13 s later.
    "value": (1.0 + 1.0 + 2.3) / 3,
    "tolerance": 0.01,
}
FILL: dict[str, Any] = {
    "table": "A",
    "trace": "p.csv",
    "nodes": "h.csv",
    "policy": "BestFit",
    "demand_pct": 100,
    "seeds": 2,
    "metric": "gpu_allocation_pct",
    "value": 90.0,
    "tolerance": 100.0,
}
PREEMPTIVE: dict[str, Any] = {
    "table": "C",
    "trace": "t.csv.gz",
    "cluster": "c.csv",
    "policy": "SRTF",
    "metric": "average_jct_s",
    # At both events, 1.5 s and 21.8 s, job 8 loses the 5 s that it takes to start.
    "value": (100 * 0.2 * 1.015 + 50 * 0.49 * 1.015 + 1.5 + 5.0) / 2,
    "tolerance": 0.001,
}
SHARES = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli
p0,1000,10,1,500
p1,1000,10,1,300
p2,1000,10,1,1000
p3,1000,10,0,0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written(tmp_path, "a.swf", SWF)
    written(tmp_path, "h.csv", HOSTS)
    written(tmp_path, "p.csv", SHARES)
    written(tmp_path, "t.csv.gz", TRAINING)
    written(tmp_path, "c.csv", CLUSTER)
    return tmp_path


def reproduced(
    folder: Path, *records: dict[str, Any], args: tuple[str, ...] = ()
) -> int:
    """Run the command in this process; return its exit code."""
    (folder / EXPECTED).write_text(json.dumps(records), encoding="utf-8")
    line = ["reproduce", "--traces", str(folder), "--processes", "1", *args]
    try:
        sim.main(line, standalone_mode=False)
    except SystemExit as end:
        return int(str(end.code))
    except ShoalError as error:
        print(explained(error))  # noqa: T201 - for the assertions on what is told
        return int(exit_code_of(error))
    raise AssertionError("it always exits")


def test_every_kind_of_record_is_reproduced_from_files_of_our_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = reproduced(folder, BATCH, FILL, PREEMPTIVE)

    out = capsys.readouterr().out
    assert code == 0, out
    assert out.count(" ok") == 3


def test_results_are_told_as_they_come(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduced(folder, BATCH, FILL, PREEMPTIVE)

    told = capsys.readouterr().err.splitlines()
    came = [line.split()[0] for line in told if "ours" in line]
    assert came == ["B", "A", "C"]  # One process replays them one after the other.


def test_one_record_outside_its_tolerance_makes_the_command_fail(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**BATCH, "value": 1.45}

    assert reproduced(folder, BATCH, wrong) == 1
    assert capsys.readouterr().out.count("OUTSIDE") == 1


def test_json_has_every_record_with_what_we_got(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduced(folder, {**BATCH, "value": 3.0}, args=("--json",))

    answer = json.loads(capsys.readouterr().out)
    [record] = answer["records"]
    assert record["value"] == 3.0
    assert record["ours"] == pytest.approx(4.3 / 3)
    assert record["difference"] == pytest.approx(4.3 / 3 - 3.0)
    assert answer["within"] is record["within"] is False


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"trace": "none.swf"}, "there is no such trace"),
        ({"policy": "SJFF"}, "no queue order 'SJFF'"),
        ({"metric": "joy"}, "no metric 'joy'"),
        ({"value": "much"}, "record 1 is wrong"),
        ({"starts": [99], "length": 3}, "no window of 3 jobs at 99"),
        ({"table": "A"}, "names no file of nodes"),
        ({"table": "C"}, "names no cluster"),
        ({"seeds": 0}, "has no seeds"),
        ({"candidates": 0}, "0 candidates"),
    ],
)
def test_what_is_wrong_with_a_record_is_told_and_is_no_failure_of_ours(
    folder: Path,
    change: dict[str, Any],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = {**BATCH, **change}
    if change.get("table") == "A":
        changed["metric"] = "gpu_allocation_pct"

    code = reproduced(folder, changed)

    assert told in capsys.readouterr().out
    assert code == 2


def test_a_field_that_is_not_understood_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduced(folder, {**BATCH, "phase_of_moon": "full", "note": "x"}) == 0

    err = capsys.readouterr().err
    assert "record 1: field 'phase_of_moon' is not understood" in err
    assert "note" not in err


@pytest.mark.parametrize("text", ["[1]", "{}", "[", '"x"'])
def test_a_file_that_is_no_list_of_records_is_refused(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(UsageError):
        read_records(written(tmp_path, EXPECTED, text))


def test_windows_seeds_and_candidates_are_honoured(folder: Path) -> None:
    windows = parts_of(
        PublishedResult(**{**BATCH, "starts": (0, 1), "length": 1}), folder
    )
    seeds = parts_of(
        PublishedResult(**{**FILL, "seeds": (4, 9), "candidates": 3}), folder
    )
    one = parts_of(PublishedResult(**{**FILL, "seed": 5}), folder)

    assert [(part.start, part.length) for part in windows] == [(0, 1), (1, 1)]
    assert [(part.seed, part.candidates) for part in seeds] == [(4, 3), (9, 3)]
    assert [part.seed for part in one] == [5]


def test_records_that_differ_in_the_metric_share_their_replays(folder: Path) -> None:
    records = [
        PublishedResult(**PREEMPTIVE),
        PublishedResult(**{**PREEMPTIVE, "metric": "makespan_s"}),
    ]
    parts = [parts_of(record, folder) for record in records]

    wanted = wanted_of(records, parts)
    [(part, metrics)] = wanted.items()
    values = figures_of(part, metrics)
    figures = {(part, *m): v for m, v in zip(metrics, values, strict=True)}

    jct, makespan = results_of(records, parts, figures)
    assert makespan.ours == pytest.approx(50 * 0.49 * 1.015 + 1.5 + 5.0)
    assert jct.within


def test_without_a_folder_the_environment_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_TRACES", str(tmp_path / "elsewhere"))

    assert default_folder(tmp_path) == tmp_path / "elsewhere"


def test_the_folder_is_found_next_to_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOAL_TRACES", raising=False)
    (tmp_path / "shared" / "traces").mkdir(parents=True)
    written(tmp_path / "shared" / "traces", EXPECTED, "[]")
    (tmp_path / "project").mkdir()

    found = default_folder(tmp_path / "project")

    assert found == tmp_path / "shared" / "traces"


def test_filling_drops_what_does_not_fit_and_never_gives_more_than_there_is(
    folder: Path,
) -> None:
    hosts = list(openb.hosts(folder / "h.csv"))
    pods = list(openb.pods(folder / "p.csv"))
    typical = typical_pods(pods)

    for name in ("random", "dotprod", "gpuclustering", "gpupacking", "fgd", "forage"):
        filled = fill(hosts, pods, policy_named(name, typical, None), 3.0, seed=1)
        assert filled.capacity_milli == 2_000
        assert max(filled.allocated_milli) <= 2_000
        assert filled.arrived_milli[-1] <= 6_000
        assert filled.placed < len(filled.arrived_milli)


def test_pods_need_memory_too() -> None:
    hosts = [TraceHost(name="h", cpu_milli=8_000, memory_mib=100, gpus=8, model="T4")]
    pods = [
        Pod(name=f"p{n}", cpu_milli=100, memory_mib=40, gpus=1, gpu_milli=1_000)
        for n in range(8)
    ]

    assert fill(hosts, pods, policy_named("bestfit", (), None), 1.0, 1).placed == 2


def test_only_random_placement_breaks_up_gpus_that_a_tight_fit_keeps_whole() -> None:
    hosts = [TraceHost(name="h", cpu_milli=8_000, memory_mib=100, gpus=2, model="T4")]
    halves = [
        Pod(name=f"h{n}", cpu_milli=100, memory_mib=1, gpus=1, gpu_milli=500)
        for n in range(2)
    ]
    whole = Pod(name="w", cpu_milli=100, memory_mib=1, gpus=1, gpu_milli=1_000)

    def placed(name: str) -> list[int]:
        policy = policy_named(name, (), None)
        return [
            fill(hosts, [*halves, whole], policy, 1.0, seed).placed
            for seed in range(20)
        ]

    assert set(placed("bestfit")) == {3}
    assert min(placed("random")) == 2


def test_typical_are_the_most_frequent_pods_up_to_95_in_100() -> None:
    frequent = [Pod(name=f"a{n}", cpu_milli=1, memory_mib=n) for n in range(60)]
    seldom = [Pod(name=f"b{n}", cpu_milli=2, memory_mib=1) for n in range(35)]
    rare = [Pod(name=f"c{n}", cpu_milli=3 + n, memory_mib=1) for n in range(5)]

    typical = typical_pods([*rare, *seldom, *frequent])

    assert [(profile.cpu_milli, n) for profile, n in typical] == [(1, 60), (2, 35)]
    one_more = typical_pods([*rare, *seldom, *frequent[:-1]])
    assert [n for _, n in one_more] == [59, 35, 1]


def test_pods_with_models_go_only_to_such_hosts(folder: Path) -> None:
    hosts = list(openb.hosts(folder / "h.csv"))  # Only P100, and pods want others.
    pods = [p for p in openb.pods(written(folder, "q.csv", PODS)) if p.models]

    filled = fill(hosts, pods, policy_named("fgd", typical_pods(pods), None), 1.0, 1)

    assert filled.placed == 0


# The real thing, if it is here.


def real_folder() -> Path | None:
    try:
        return default_folder(Path(__file__).parent)
    except UsageError:
        return None


REAL = real_folder()
FAST = [
    ("B", None),
    ("C", "trace1.csv.gz"),
]


@pytest.mark.skipif(REAL is None, reason="there are no shared traces next to this")
@pytest.mark.parametrize(("table", "file"), FAST)
def test_published_results_are_reproduced(table: str, file: str | None) -> None:
    assert REAL is not None
    records, remarks = read_records(REAL / EXPECTED)
    chosen = [
        record
        for record in records
        if record.table == table and (file is None or record.trace.endswith(file))
    ]
    parts = [parts_of(record, REAL) for record in chosen]
    wanted = wanted_of(chosen, parts)
    figures = {
        (part, *metric): value
        for part, metrics in wanted.items()
        for metric, value in zip(metrics, figures_of(part, metrics), strict=True)
    }

    results = results_of(chosen, parts, figures)

    assert results
    assert not remarks
    assert [r for r in results if not r.within] == []


@pytest.mark.skipif(REAL is None, reason="there are no shared traces next to this")
@pytest.mark.parametrize(
    ("policy", "candidates", "least"),
    [("BestFit", None, 92.5), ("Forage", 8, 95.0)],
)
def test_one_fill_of_the_real_cluster_is_near_what_is_published(
    policy: str, candidates: int | None, least: float
) -> None:
    """Seeds differ by half a point; all ten of them are for `shoal sim reproduce`."""
    assert REAL is not None
    hosts = list(openb.hosts(REAL / "openb" / "openb_node_list_gpu_node.csv.gz"))
    pods = list(openb.pods(REAL / "openb" / "openb_pod_list_default.csv.gz"))
    chosen = policy_named(policy, typical_pods(pods), candidates)

    filled = fill(hosts, pods, chosen, 1.3, seed=0)

    assert least <= filled.allocation_pct(130) <= 96.5
