"""`shoal sim traces`, as a user types it, on small files of our own."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.traces.test_readers import (
    CLUSTER,
    HOSTS,
    REQUESTS,
    SWF,
    TRAINING,
    written,
)
from tests.unit.traces.test_requests import MOONCAKE

from shoal.cli.lab.sim import sim
from shoal.errors import UsageError

SHARES = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\nb,1,1,1,1000\n"


def answered(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    sim.main(["traces", *args, "--json"], standalone_mode=False)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_policies_are_compared_in_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "a.swf", SWF)

    sim.main(["traces", str(path), "--policy", "fcfs, Minnow"], standalone_mode=False)

    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert [line.split()[0] for line in lines] == ["policy", "fcfs", "Minnow"]
    assert "events" in told.err
    assert "MB" in told.err


def test_the_same_seed_makes_up_the_same_workload(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def figures(seed: str) -> list[dict[str, float]]:
        args = ("lublin:200", "--slots", "32", "--backfill", "easy", "--seed", seed)
        return [row["figures"] for row in answered(capsys, *args)["policies"]]

    assert figures("1") == figures("1")
    assert figures("1") != figures("2")


@pytest.mark.parametrize(
    "options",
    [
        ("--policy", "srtf,las,braid", "--preemptive"),
        ("--policy", "srsf,tiresias,braid", "--protocol", "muri"),
        ("--policy", "fcfs,shoal", "--backfill", "conservative"),
    ],
)
def test_training_jobs_run_on_the_hosts_of_a_cluster(
    tmp_path: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = written(tmp_path, "t.csv", TRAINING)
    cluster = written(tmp_path, "c.csv", CLUSTER)

    answer = answered(capsys, str(jobs), "--cluster", str(cluster), *options)

    for row in answer["policies"]:
        assert row["jobs"] == 2
        assert row["figures"]["average_jct_s"] > 20.0


def test_pods_fill_hosts_also_among_few_candidates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods, nodes = written(tmp_path, "p.csv", SHARES), written(tmp_path, "h.csv", HOSTS)
    args = (str(pods), "--nodes", str(nodes), "--policy", "fgd,forage,best-fit")

    for more in ((), ("--candidates", "2"), ("--demand", "90")):
        for row in answered(capsys, *args, *more)["policies"]:
            assert 0 < row["figures"]["gpu_allocation_pct"] <= 100


def test_placement_policies_run_on_many_hosts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = answered(
        capsys, "philly:300", "--hosts", "40", "--policy", "balanced,forage-64,random"
    )

    assert [row["policy"] for row in answer["policies"]] == [
        "balanced",
        "forage-64",
        "random",
    ]
    assert all(row["events"] >= 300 for row in answer["policies"])


def test_a_workload_can_be_cut_shuffled_and_put_at_the_beginning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = ("poisson:100", "--slots", "16", "--policy", "sjf")

    cut = answered(capsys, *base, "--window", "10:50", "--warm-up", "20")
    first = answered(capsys, *base, "--first", "7")
    mixed = answered(capsys, *base, "--shuffle")
    together = answered(capsys, *base, "--at-once")
    plain = answered(capsys, *base)

    assert cut["policies"][0]["jobs"] == 30
    assert first["policies"][0]["jobs"] == 7
    figures = [a["policies"][0]["figures"] for a in (mixed, together, plain)]
    assert figures[0] != figures[2]
    assert figures[1]["average_wait_s"] > figures[2]["average_wait_s"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("none.swf",), "no such file"),
        (("lublin:10", "--policy", "minow"), "no queue order 'minow'"),
        (("lublin:10", "--policy", "braid"), "no queue order 'braid'"),
        (("philly:10", "--hosts", "4", "--policy", "best"), "no policy 'best'"),
        (("philly:10", "--hosts", "0"), "no cluster"),
        (("lublin:0",), "not between 1 and"),
        (("lublin:10", "--window", "5"), "no window"),
        (("lublin:10", "--window", "50:5"), "no window"),
        (("lublin:10", "--warm-up", "10"), "none is left"),
        (("lublin:10", "--protocol", "muri", "--policy", "srtf"), "needs a cluster"),
        (("{folder}/t.csv",), "how large is the cluster"),
        (("{folder}/a.swf", "--slots", "3"), "can never run"),
        (("{folder}/p.csv", "--slots", "3"), "no jobs that ran"),
        (("{folder}/r.csv", "--columns", "oops"), "no part of a column map"),
    ],
)
def test_what_makes_no_sense_is_told(
    tmp_path: Path, args: tuple[str, ...], told: str
) -> None:
    written(tmp_path, "r.csv", REQUESTS)
    written(tmp_path, "a.swf", SWF)
    written(tmp_path, "p.csv", SHARES)
    written(tmp_path, "t.csv", TRAINING)
    line = [part.replace("{folder}", str(tmp_path)) for part in args]

    with pytest.raises(UsageError) as error:
        sim.main(["traces", *line], standalone_mode=False)

    assert told in str(error.value)


def test_jobs_that_can_never_run_are_left_out_if_so_wished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "a.swf", SWF)

    answer = answered(capsys, str(path), "--slots", "4", "--drop")

    assert [row["dropped"] for row in answer["policies"]] == [1, 1, 1]


def test_of_requests_it_shows_what_is_in_them_and_replays_them_on_slots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = written(tmp_path, "m.jsonl", MOONCAKE)
    table = written(tmp_path, "r.csv", REQUESTS)

    shown = answered(capsys, str(lines))["summary"]
    replayed = answered(capsys, str(lines), "--slots", "2")["policies"]
    sim.main(["traces", str(table)], standalone_mode=False)

    told = capsys.readouterr()
    assert shown["requests"] == 3
    assert shown["reuse"][0] == {"cache_blocks": 1_000, "found_pct": 100 * 2 / 7}
    assert {line["jobs"] for line in replayed} == {3}
    assert "1 requests in 0 s" in told.out
    assert "cache" not in told.out
    assert "--slots" in told.err
