"""Whatever a hostile node serves as outputs, nothing is written outside the target."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client
from shoal.api.client.shipping import PulledOutputs, take_outputs
from shoal.blobs import trees
from shoal.cli.jobs.pull import _usual
from shoal.errors import ShoalError
from shoal.protocol.blob_hashing import name_of_bytes

SALT = b"s" * 16


class Node:
    """Serves what it likes, in answer to whatever it is asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.unasked: list[pb.BlobPart] = []
        self.silent = False

    def file(self, path: str, data: bytes = b"evil") -> trees.TreeEntry:
        name = name_of_bytes(data)
        self.files[name] = data
        return trees.TreeEntry(path, "file", name)

    def get_blobs(self, blobs: Iterable[str]) -> Iterator[pb.BlobPart]:
        yield from self.unasked
        for blob in [] if self.silent else blobs:
            yield pb.BlobPart(blob=blob, data=self.files[blob])


class Trap:
    """A folder to pull into, and what is around it."""

    def __init__(self, root: Path) -> None:
        self.outside = root / "outside"
        self.outside.mkdir()
        (self.outside / "key").write_text("secret")
        self.target = root / "home" / "target"
        self.node = Node()

    def pull(
        self, *kept: tuple[str, list[trees.TreeEntry]], patterns: tuple[str, ...] = ()
    ) -> list[PulledOutputs]:
        reply = pb.OutputsReply(job_id="j")
        for task, entries in kept:
            tree = trees.encode(trees.make(SALT, entries))
            reply.tasks.append(pb.TaskOutputs(task=task, tree=tree, patterns=patterns))
        return take_outputs(reply, cast("Client", self.node), self.target)

    @property
    def harm(self) -> list[str]:
        """What is there that should not be."""
        before = {"outside", "outside/key", "home", "home/target"}
        root = self.outside.parent
        found = {str(path.relative_to(root)) for path in root.rglob("*")}
        inside = {name for name in found if name.startswith("home/target/")}
        changed = (self.outside / "key").read_text() != "secret"
        return sorted(found - inside - before) + ["changed"] * changed


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "/etc/x", "a/../../x", "a\0b", "", ".", "a//b", "x" * 300),
        "/".join("a" * 200),
    ],
)
def test_a_path_that_leads_out_or_is_none_is_refused(trap: Trap, path: str) -> None:
    with pytest.raises(ShoalError):
        trap.pull(("j.main.0", [trap.node.file(path)]))

    assert trap.harm == []


@pytest.mark.parametrize(
    "task",
    [
        "j.../../x",
        "j./etc",
        "j.a/b",
        "../..",
        "j.a\nb",
        "j.\x1b[2J",
        "j..",
        "j." + "x" * 300,
    ],
)
def test_a_task_whose_name_is_a_path_is_refused(trap: Trap, task: str) -> None:
    with pytest.raises(ShoalError) as caught:
        trap.pull(("j.main.0", []), (task, [trap.node.file("x")]))

    assert trap.harm == []
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("folder", ["../x", "/etc", "a/../..", "a\0b"])
def test_a_folder_that_leads_out_is_refused_even_for_one_task(
    trap: Trap, folder: str
) -> None:
    tree = trees.encode(trees.make(SALT, [trap.node.file("x")]))
    kept = pb.TaskOutputs(task="j.main.0", tree=tree, folder=folder)
    reply = pb.OutputsReply(job_id="j", tasks=[kept])

    with pytest.raises(ShoalError):
        take_outputs(reply, cast("Client", trap.node), trap.target)

    assert trap.harm == []


def test_a_point_of_a_sweep_has_its_folder_though_it_is_the_only_one(
    trap: Trap,
) -> None:
    tree = trees.encode(trees.make(SALT, [trap.node.file("x")]))
    kept = pb.TaskOutputs(task="j.main.3", tree=tree, folder="lr=0.1")
    reply = pb.OutputsReply(job_id="j", tasks=[kept])

    [taken] = take_outputs(reply, cast("Client", trap.node), trap.target)

    assert taken.folder == str(trap.target / "lr=0.1")


def test_two_tasks_of_one_name_are_refused(trap: Trap) -> None:
    for other in ("j.main.0", "j.MAIN.0"):
        with pytest.raises(ShoalError, match="invalid names"):
            trap.pull(("j.main.0", []), (other, []))


@pytest.mark.parametrize("to", ["..", "../outside", "/etc", "a/../../..", "b"])
def test_a_link_that_leads_out_is_refused(trap: Trap, to: str) -> None:
    entries = [
        trees.TreeEntry("a", "link", to),
        trees.TreeEntry("b", "link", "../outside"),
    ]
    with pytest.raises(ShoalError):
        trap.pull(("j.main.0", entries))

    assert trap.harm == []


def test_nothing_is_written_through_a_link_of_the_same_tree(trap: Trap) -> None:
    entries = [trees.TreeEntry("a", "link", "b"), trap.node.file("a/x")]
    with pytest.raises(ShoalError):
        trap.pull(("j.main.0", entries))


def test_a_link_that_leads_out_of_the_one_folder_that_is_kept_is_left_out(
    trap: Trap,
) -> None:
    entries = [
        trees.TreeEntry("out/link", "link", "../../outside"),
        trees.TreeEntry("out/up", "link", "../beside"),
        trees.TreeEntry("out/fine", "link", "x"),
        trap.node.file("out/x"),
    ]
    with pytest.raises(ShoalError):
        trap.pull(("j.main.0", entries), patterns=("out/",))

    trap.pull(("j.main.0", entries[1:]), patterns=("out/",))

    assert sorted(path.name for path in trap.target.iterdir()) == ["fine", "x"]
    assert trap.harm == []


def test_nothing_is_written_through_links_of_another_task_or_of_before(
    trap: Trap,
) -> None:
    trap.target.mkdir(parents=True)
    (trap.target / "main.1").symlink_to(trap.outside)
    (trap.target / "deep").symlink_to(trap.outside)

    with pytest.raises(ShoalError):
        trap.pull(("j.main.0", []), ("j.main.1", [trap.node.file("x")]))
    with pytest.raises(ShoalError):
        trap.pull(("j.main.0", [trap.node.file("deep/x")]))

    assert trap.harm == []


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(trap: Trap) -> None:
    trap.target.mkdir(parents=True)
    (trap.target / "x").symlink_to(trap.outside / "key")

    trap.pull(("j.main.0", [trap.node.file("x")]))

    assert trap.harm == []
    assert (trap.target / "x").read_text() == "evil"
    assert not (trap.target / "x").is_symlink()


def test_sizes_that_lie_and_files_that_nobody_asked_for_are_refused(trap: Trap) -> None:
    entry = trap.node.file("x")
    trap.node.unasked = [pb.BlobPart(blob="f" * 64 + "-1", data=b"x")]
    with pytest.raises(ShoalError, match="nobody asked"):
        trap.pull(("j.main.0", [entry]))

    trap.node.unasked = []
    trap.node.files[entry.to] = b"much more than it was said to be"
    with pytest.raises(ShoalError, match="arrived damaged"):
        trap.pull(("j.main.0", [entry]))

    trap.node.silent = True
    with pytest.raises(ShoalError, match="did not arrive"):
        trap.pull(("j.main.0", [entry]))
    assert list(trap.target.iterdir()) == []


def test_a_tree_that_is_too_large_or_no_tree_is_refused(trap: Trap) -> None:
    many = [trees.TreeEntry(f"{n}", "folder") for n in range(trees.ENTRIES_MAX + 1)]
    with pytest.raises(ShoalError, match="the most is"):
        trap.pull(("j.main.0", many))
    reply = pb.OutputsReply(tasks=[pb.TaskOutputs(task="j.main.0", tree=b"\xff\xff")])
    with pytest.raises(ShoalError, match="no tree"):
        take_outputs(reply, cast("Client", trap.node), trap.target)


@pytest.mark.parametrize("job", ["../x", "/etc", "", "a/b", "..", "a\nb"])
def test_a_job_whose_id_is_a_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ShoalError):
        _usual(job)

    assert list(tmp_path.iterdir()) == []


def test_an_honest_node_is_served_as_ever(trap: Trap) -> None:
    entries = [
        trap.node.file("a"),
        trap.node.file("new\nline"),
        trap.node.file("d/e", b""),
    ]
    taken = trap.pull(("j.main.0", entries), ("j.main.1", [trap.node.file("x")]))

    assert [each.folder for each in taken] == [
        str(trap.target / "main.0"),
        str(trap.target / "main.1"),
    ]
    assert (trap.target / "main.0" / "d" / "e").read_bytes() == b""
    assert (trap.target / "main.1" / "x").read_bytes() == b"evil"
    assert trap.harm == []
