"""What a submit says of where a job could go."""

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.offers import OFFERS_SHOWN_MAX, tell

NOW = pb.Prospect.WHEN_NOW
NEVER = pb.Prospect.WHEN_NEVER

Captured = pytest.CaptureFixture[str]


def prospect(
    name: str, when: pb.Prospect.When = NOW, slots: int = 1, why: str = ""
) -> pb.Prospect:
    node = pb.Node(name=pb.NodeName(petname=name), path="direct", rtt_us=800)
    return pb.Prospect(node=node, when=when, slots=slots, why=why)


def group(*prospects: pb.Prospect, name: str = "main", more: int = 0) -> pb.GroupPlan:
    room = sum(each.when == NOW for each in prospects)
    helps = [] if room else ["--gpus 2", "wait"]
    return pb.GroupPlan(
        group=name, least=1, room=room, prospects=prospects, more=more, helps=helps
    )


def test_nothing_of_it_is_data(capsys: Captured) -> None:
    tell(pb.PlanReply(groups=[group(prospect("otter"))]))

    assert capsys.readouterr().out == ""


def test_one_node_is_one_line(capsys: Captured) -> None:
    tell(pb.PlanReply(groups=[group(prospect("otter"))]))

    said = capsys.readouterr().err
    assert said == "offers: otter (direct 0.8 ms) has room now\n"


def test_several_nodes_are_a_table_with_the_reasons(capsys: Captured) -> None:
    heron, crow = (
        prospect("heron", slots=2),
        prospect("crow", NEVER, 0, "has 1 GPU, 2 needed"),
    )

    tell(pb.PlanReply(groups=[group(heron, crow)]))

    lines = capsys.readouterr().err.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "offers: 1 of 2 nodes have room now",
        "# NODE GPU PATH START WHY",
        "1 heron no GPU direct 0.8 ms now, 2 of them",
        "2 crow no GPU direct 0.8 ms never has 1 GPU, 2 needed",
    ]


def test_what_would_help_is_said_if_there_is_no_room(capsys: Captured) -> None:
    tell(pb.PlanReply(groups=[group(prospect("crow", NEVER))]))

    assert capsys.readouterr().err.splitlines() == [
        "offers: no room now on the one node: it waits",
        "  helps: --gpus 2   |   wait",
    ]


def test_a_long_table_is_cut(capsys: Captured) -> None:
    many = [prospect(f"n{number}") for number in range(OFFERS_SHOWN_MAX + 2)]

    tell(pb.PlanReply(groups=[group(*many, more=40)]))

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "offers: 7 or more of 47 nodes have room now"
    assert len(lines) == 2 + OFFERS_SHOWN_MAX + 1
    assert lines[-1] == "  and 42 other nodes"


def test_each_of_several_groups_is_a_line(capsys: Captured) -> None:
    prep, train = group(prospect("otter"), name="prep"), group(name="train")

    tell(pb.PlanReply(groups=[prep, train], more=3))

    assert capsys.readouterr().err.splitlines() == [
        "  prep: otter (direct 0.8 ms) has room now",
        "  train: no known node runs tasks: it waits for one",
        "  and 3 other groups",
    ]
