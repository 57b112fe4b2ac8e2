"""Jobs of several nodes in one table, and who did not tell theirs."""

import json

import pytest
from reference.answers import ANSWERS, breaches

from shoal.api import shoal_pb2 as pb
from shoal.cli.jobs.ps import show


def node(name: str, *jobs: pb.Job, total: int = 0) -> pb.NodeJobs:
    named = pb.NodeName(id=f"id of {name}", petname=name)
    return pb.NodeJobs(node=named, jobs=jobs, total=total or len(jobs))


def job(name: str, submitted_s: float) -> pb.Job:
    return pb.Job(id=name, submitted_s=submitted_s, state=pb.STATE_DONE)


def reply() -> pb.ListEverywhereReply:
    silent = node("crow")
    silent.trouble.what = "crow cannot be reached"
    silent.trouble.because = "it did not answer in time"
    found = [node("otter", job("late", 3.0), total=7), node("heron", job("early", 2.0))]
    return pb.ListEverywhereReply(nodes=[*found, silent], unreached=2)


def test_jobs_of_all_nodes_are_in_one_order_and_who_is_silent_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(reply(), as_json=False, quiet=False, most=20)

    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["NODE", "heron", "otter"]
    assert "crow did not list its jobs: it did not answer in time" in err
    assert "and 6 older ones of otter: --all" in err
    assert "2 nodes of the shoal cannot be reached now" in err
    assert "next: shoal show late --node otter" in err


def test_the_document_has_where_each_job_is_and_who_is_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(reply(), as_json=True, quiet=False, most=0)

    document = json.loads(capsys.readouterr().out)
    document.pop("version")
    assert breaches(ANSWERS["ps"], document) == []
    assert [one["at"]["petname"] for one in document["jobs"]] == ["heron", "otter"]
    assert [one["petname"] for one in document["silent"]] == ["crow"]
    assert (document["total"], document["unreached"]) == (8, 2)


def test_quietly_there_are_ids_and_who_is_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(reply(), as_json=False, quiet=True, most=20)

    out, err = capsys.readouterr()
    assert out.split() == ["early", "late"]
    assert err.splitlines() == ["crow did not list its jobs: it did not answer in time"]
