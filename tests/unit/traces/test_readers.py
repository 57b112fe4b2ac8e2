"""Files of every format are read as what they say, and mistakes are found by line."""

import gzip
import json
from pathlib import Path

import pytest

from shoal.errors import TraceError, UsageError
from shoal.lab.traces import batsim, llm_requests, openb, philly, training
from shoal.lab.traces.csv_columns import mapped_jobs, parse_map
from shoal.lab.traces.formats import format_of, read_jobs
from shoal.lab.traces.swf import SwfFile
from shoal.lab.traces.trace_files import json_items

SWF = """\
; Version: 2.2
; MaxNodes: 16 (of which one broke)
;  MaxProcs : 64

   3   20 -1  7.5  -1 -1 -1  8  60 -1 1 9 1 1 1 1 -1 -1
1 5 0 100 4 -1 -1 2 -1 -1 1 -1 1 1 1 1 -1 -1 a note
2 6 0 0 4 -1 -1 2 -1 -1 1 -1 1 1 1 1 -1 -1
4 7 0 -1 4 -1 -1 2 -1 -1 1 -1 1 1 1 1 -1 -1
"""
HOSTS = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,p100\nn1,8000,16,0,\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time
p0, 4000 ,1024,1,460, V100M16 | T4 ,LS,10,25
p1,2000,512,0,0,,BE,0,5

p2,2000,512,8,1000,,BE,3,9
"""
TRAINING = """\
job_id,num_gpu,submit_time,iterations,model_name,duration,iteration_time,resource_time_0,resource_time_1,resource_time_2
7,4,1500,100,bert,20000,200,0.5,160,18
8,1,0,50,dqn,25000,490,446,8,0
"""
CLUSTER = "num_switch,num_node_p_switch,num_gpu_p_node\n2,3,4\n"
PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,2,132.0,vc
"""
REQUESTS = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,8000,40\n"
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.swf", "a.swf.gz", "a"])
def test_swf_is_read_with_blanks_floats_and_unknown_fields(
    tmp_path: Path, name: str
) -> None:
    file = SwfFile(written(tmp_path, name, SWF))

    jobs = list(file.jobs())

    assert [job.id for job in jobs] == ["3", "1", "2", "4"]
    assert (jobs[0].run_s, jobs[0].requested_s, jobs[0].slots) == (7.5, 60.0, 8)
    assert (jobs[1].run_s, jobs[1].requested_s, jobs[1].slots) == (100.0, 100.0, 4)
    assert [jobs[2].run_s, jobs[3].run_s] == [0.0, -1.0]
    assert jobs[0].owner == "9"
    assert (file.slots(), file.nodes()) == (64, 16)


def test_nodes_are_as_many_as_processors_if_nothing_else_is_said(
    tmp_path: Path,
) -> None:
    text = SWF.replace(";  MaxProcs : 64\n", "")
    file = SwfFile(written(tmp_path, "a.swf", text))
    list(file.jobs())

    assert file.slots() == 16


def test_jobs_that_never_ran_are_left_out_of_a_replay(tmp_path: Path) -> None:
    trace = read_jobs(written(tmp_path, "a.swf", SWF))

    assert [job.id for job in trace.jobs] == ["1", "3"]  # in the order of submits
    assert trace.slots == 64


def test_hosts_and_pods_are_read_with_sets_of_models(tmp_path: Path) -> None:
    hosts = list(openb.hosts(written(tmp_path, "h.csv", HOSTS)))
    pods = list(openb.pods(written(tmp_path, "p.csv.gz", PODS)))

    assert [(h.gpus, h.model) for h in hosts] == [(2, "P100"), (0, "")]
    assert [pod.models for pod in pods] == [("V100M16", "T4"), (), ()]
    assert [pod.gpu_milli_all for pod in pods] == [460, 0, 8_000]


def test_a_list_of_pods_may_stop_after_the_gpus(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,2,1,500\n"

    [pod] = openb.pods(written(tmp_path, "p.csv", text))

    assert (pod.gpu_milli, pod.models, pod.deleted_s) == (500, (), 0.0)


def test_training_jobs_are_in_ms_if_their_steps_say_so(tmp_path: Path) -> None:
    in_s = TRAINING.replace("20000", "20").replace("25000", "25")

    ms = list(training.training_jobs(written(tmp_path, "ms.csv", TRAINING)))
    s = list(training.training_jobs(written(tmp_path, "s.csv", in_s)))

    assert [job.run_s for job in ms] == [20.0, 25.0]
    assert [job.run_s for job in s] == [20.0, 25.0]
    assert [ms[0].submitted_s, s[0].submitted_s] == [1.5, 1500.0]
    assert ms[0].stages_ms == (0.5, 160.0, 18.0)


def test_training_jobs_without_steps_are_in_seconds(tmp_path: Path) -> None:
    text = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"

    [job] = training.training_jobs(
        written(tmp_path, "t.csv", text + "1,2,30,5,vgg,90,1\n")
    )

    assert (job.submitted_s, job.run_s, job.stages_ms) == (30.0, 90.0, ())


def test_a_cluster_is_one_row(tmp_path: Path) -> None:
    cluster = training.cluster(written(tmp_path, "c.csv", CLUSTER))

    assert (cluster.hosts, cluster.gpus) == (6, 24)
    with pytest.raises(TraceError, match="0 rows"):
        training.cluster(written(tmp_path, "d.csv", CLUSTER.partition("\n")[0] + "\n"))


def test_philly_is_read_flat_and_as_published(tmp_path: Path) -> None:
    item = {
        "jobid": "app_1",
        "vc": "vc",
        "submitted_time": "2017-10-09 07:01:55",
        "attempts": [
            {
                "start_time": "2017-10-09 07:02:00",
                "end_time": "2017-10-09 07:03:00",
                "detail": [{"ip": "m1", "gpus": ["g0", "g1"]}, {"gpus": ["g0"]}],
            },
            {"start_time": "None", "end_time": None, "detail": []},
        ],
    }
    flat = list(philly.flat_jobs(written(tmp_path, "f.csv", PHILLY)))
    nested = list(
        philly.original_jobs(written(tmp_path, "f.json", json.dumps([item, item])))
    )

    assert (flat[0].run_s, flat[0].slots, flat[0].owner) == (66.0, 2, "vc")
    assert [(job.run_s, job.slots) for job in nested] == [(60.0, 3)] * 2
    assert nested[0].submitted_s == flat[0].submitted_s


def test_requests_are_read_with_seven_digits_of_a_second(tmp_path: Path) -> None:
    [request] = llm_requests.requests(written(tmp_path, "r.csv", REQUESTS))

    assert request.arrived_s % 1 == pytest.approx(0.97996)
    assert llm_requests.as_job(0, request).run_s == pytest.approx(2.0)


def test_batsim_is_read_with_its_profiles(tmp_path: Path) -> None:
    document = {
        "nb_res": 4,
        "jobs": [
            {"id": "w!1", "subtime": 3, "walltime": 90, "res": 2, "profile": "d"},
            {"id": "w!2", "subtime": 1, "res": 1, "profile": "c"},
        ],
        "profiles": {
            "d": {"type": "delay", "delay": 60},
            "c": {"type": "parallel_homogeneous", "cpu": 5e9, "com": 0},
        },
    }

    trace = batsim.read(written(tmp_path, "b.json", json.dumps(document)))

    assert [(job.run_s, job.requested_s) for job in trace.jobs] == [(60, 90), (5, 5)]
    assert trace.slots == 4


def test_any_csv_is_read_by_a_map_of_columns_and_units(tmp_path: Path) -> None:
    path = written(tmp_path, "x.csv", "at,len,n\n2020-01-01T00:00:10Z,1.5,3\n")
    columns = parse_map("submitted=at:iso, run=len:min, slots=n")

    [job] = mapped_jobs(path, columns)

    assert (job.run_s, job.slots, job.submitted_s % 60) == (90.0, 3, 10.0)


@pytest.mark.parametrize(
    "wrong", ["submitted", "run=x", "submitted=a:weeks,run=b", "slots=a:ms,run=b"]
)
def test_a_wrong_map_of_columns_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        parse_map(wrong)


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        (SWF, "swf"),
        (SWF.partition("\n\n")[2], "swf"),
        (HOSTS, "openb-hosts"),
        (PODS, "openb-pods"),
        (TRAINING, "training"),
        (CLUSTER, "cluster"),
        (PHILLY, "philly"),
        (REQUESTS, "requests"),
        (" [ ]", "philly-json"),
        ('{"jobs": []}', "batsim"),
    ],
)
def test_formats_are_told_apart_by_what_is_in_the_file(
    tmp_path: Path, text: str, format_: str
) -> None:
    assert format_of(written(tmp_path, "no-ending", text)) == format_


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.swf", "; x\n1 2 3\n", "line 2: 3 fields, not 18"),
        (
            "a.swf",
            SWF.replace("7.5", "soon"),
            "line 5: field 4 is 'soon', not a number",
        ),
        ("a.swf", SWF.replace("7.5", "nan"), "line 5: field 4 is 'nan', not a number"),
        ("p.csv", PODS.replace("2000", "many"), "line 3: cpu_milli is 'many'"),
        ("p.csv", PODS.replace("460", "1460"), "line 2: gpu_milli is '1460'"),
        ("p.csv", PODS + "p3,1,2,3,4,5,6,7,8,9\n", "line 6: 10 fields, and 9"),
        ("t.csv", TRAINING.replace("8,1,0", "8,0,0"), "line 3: num_gpu is '0'"),
        ("f.csv", PHILLY.replace("2017", "17"), "line 2: timestamp is"),
        ("f.json", '[{"jobid": 1}]', "item 1 is no job of Philly"),
        ("f.json", "[\n {", "line 2: this is no JSON"),
        ("b.json", '{"jobs": [{}], "profiles": {}}', "no workload of Batsim"),
        ("b.json", '{"jobs":\n oh}', "line 2: this is no JSON"),
        ("c.csv", CLUSTER, "there are no jobs in this file"),
        ("x.csv", "what,is,this\n", "no format that shoal knows"),
        ("x.csv", "", "no format that shoal knows"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = written(tmp_path, name, text)

    with pytest.raises(TraceError) as told:
        read_jobs(path)

    assert str(path) in told.value.what
    assert said in told.value.what


def test_a_missing_a_binary_and_a_damaged_file_are_told(tmp_path: Path) -> None:
    damaged = tmp_path / "d.gz"
    damaged.write_bytes(gzip.compress(SWF.encode() * 100)[:80])
    binary = tmp_path / "b"
    binary.write_bytes(b"\xff\xfe\x00junk")

    for path, said in (
        (tmp_path / "none.swf", "no such file"),
        (damaged, "damaged"),
        (binary, "no text"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(TraceError, match=said):
            read_jobs(path)


def test_a_json_array_is_read_item_by_item_across_chunks(tmp_path: Path) -> None:
    items = [{"n": n, "x": "y" * (n % 997)} for n in range(2_000)]
    path = written(tmp_path, "a.json", json.dumps(items, indent=1))

    assert list(json_items(path)) == items
