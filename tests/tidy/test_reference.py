"""The pages of reference are what the code says today, and the code keeps them."""

from pathlib import Path

import click
import pytest
from reference import pages
from reference.answers import ANSWERS, OBJECTS, breaches
from reference.commands_page import CODES

from shoal.api import documents
from shoal.api import shoal_pb2 as pb
from shoal.api.client.shipping import PulledOutputs
from shoal.cli import COMMANDS, HELP, shoal
from shoal.cli.display.printing import taken_fields
from shoal.cli.exit_codes import ExitCode

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = pages()


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> dict[str, click.Command]:
    """Return all commands under their whole names."""
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= commands(command, (*path, name))
        else:
            found[" ".join((*path, name))] = command
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_make_docs_writes(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "run `make docs`"


def test_nothing_else_is_among_the_pages() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(PAGES)


def test_every_command_is_listed_and_described() -> None:
    listed = [name for section in HELP.values() for name in section]

    assert sorted(listed) == sorted(COMMANDS)
    for name in COMMANDS:
        assert f"\n### shoal {name}\n" in PAGES["cli.md"]


def test_every_exit_code_is_described() -> None:
    assert sorted(CODES) == sorted(ExitCode)


def test_every_command_that_prints_json_is_documented() -> None:
    printing_json = [
        name
        for name, command in commands(shoal).items()
        if any("--json" in param.opts for param in command.params)
    ]

    assert sorted(ANSWERS) == sorted(printing_json)


def test_what_commands_print_of_messages_is_as_documented() -> None:
    node = pb.Node(devices=[pb.Device()])
    taken = PulledOutputs(task="t", folder="f", files=1, bytes=2)
    task = pb.TaskExplanation(refused=[pb.Verdict()])
    group = pb.GroupPlan(prospects=[pb.Prospect(node=node)])

    printed = {
        "job": documents.job_fields(pb.Job(nodes=[pb.NodeName()])),
        "task": documents.task_fields(pb.Task(nodes=[pb.NodeName()])),
        "node": documents.node_fields(node),
        "name": documents.name_fields(pb.NodeName()),
        "output": taken_fields([taken])[0],
        "explanation": documents.explanation_fields(task),
        "group": documents.fields_of(group),
    }

    for name, document in printed.items():
        assert breaches(OBJECTS[name], document) == []
    event = pb.Event(job="j", task="t", node=pb.NodeName())
    assert breaches(ANSWERS["events"], documents.event_fields(event)) == []
    piece = pb.LogPiece(data=b"\xff")
    assert breaches(ANSWERS["logs"], documents.piece_fields(piece)) == []


def test_a_document_that_differs_is_told_where() -> None:
    job = documents.job_fields(pb.Job(nodes=[pb.NodeName()]))
    del job["owner"]
    job["nodes"][0]["colour"] = "red"
    job["number"] = True
    job["exit_code"] = "1"

    assert breaches(ANSWERS["cancel"], {"jobs": [job]}) == [
        "$.jobs[0].owner is not there",
        "$.jobs[0].nodes[0].colour is not documented",
        "$.jobs[0].exit_code is '1', not int",
        "$.jobs[0].number is True, not int",
    ]
