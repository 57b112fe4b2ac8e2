import os
import socket
import stat
from pathlib import Path

import pytest

from shoal.blobs import packing, trees, unpacking
from shoal.blobs.packing import Naming, pack_outputs, pack_path, pack_workdir
from shoal.blobs.store import BlobStore
from shoal.errors import ShoalError, UsageError

SALT = b"s" * 16


def fill(root: Path, *paths: str) -> Path:
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path)
    return root


def names(root: Path) -> list[str]:
    return sorted(entry.path for entry in pack_workdir(root, Naming().name).entries)


def store_in(path: Path) -> BlobStore:
    store = BlobStore(path / "cache", 1 << 30)
    store.open()
    return store


# What stays at home.


def test_what_git_ignores_stays_at_home(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "b.log", "data/x.bin", "deep/b.log", ".git/config")
    fill(tmp_path, "__pycache__/a.pyc", "keep/data/y")
    (tmp_path / ".gitignore").write_text("*.log\n/data/\n")

    assert names(tmp_path) == [".gitignore", "a.py", "keep/data/y"]


def test_a_deeper_rule_counts_more_and_can_take_back(tmp_path: Path) -> None:
    fill(tmp_path, "a.log", "sub/a.log", "sub/b.log", "sub/deep/a.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub" / ".gitignore").write_text("!a.log\n")

    found = names(tmp_path)

    assert "a.log" not in found
    assert "sub/b.log" not in found
    assert {"sub/a.log", "sub/deep/a.log"} <= set(found)


def test_what_is_in_an_ignored_folder_cannot_be_taken_back(tmp_path: Path) -> None:
    fill(tmp_path, "out/keep.txt", "code.py")
    (tmp_path / ".gitignore").write_text("out/\n!out/keep.txt\n")

    assert names(tmp_path) == [".gitignore", "code.py"]


def test_shoalignore_has_the_last_word_in_its_folder(tmp_path: Path) -> None:
    fill(tmp_path, "model.pt", "notes.md", "__pycache__/m.pyc")
    (tmp_path / ".gitignore").write_text("*.pt\n")
    (tmp_path / ".shoalignore").write_text("!model.pt\nnotes.md\n!__pycache__/\n")

    found = names(tmp_path)

    assert "model.pt" in found
    assert "notes.md" not in found
    assert "__pycache__/m.pyc" in found


def test_rules_above_count_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    fill(tmp_path, "repo/.git/config", "repo/job/a.py", "repo/job/a.tmp")
    fill(tmp_path, "repo/job/b.bak", "repo/other/x")
    (tmp_path / ".gitignore").write_text("*.py\n")  # Outside: it does not count.
    (tmp_path / "repo" / ".gitignore").write_text("*.tmp\n/job/*.bak\n")

    assert names(tmp_path / "repo" / "job") == ["a.py"]


def test_rules_above_do_not_count_without_a_repository(tmp_path: Path) -> None:
    fill(tmp_path, "job/a.py")
    (tmp_path / ".gitignore").write_text("*.py\n")

    assert names(tmp_path / "job") == ["a.py"]


# What travels, and how.


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    source = fill(tmp_path / "in", "a/b/c.txt", "run.sh", "twin")
    (source / "twin").write_text("a/b/c.txt")
    (source / "run.sh").chmod(0o755)
    (source / "empty").mkdir()
    (source / "a" / "link").symlink_to("../run.sh")
    store = store_in(tmp_path)

    packed = pack_workdir(source, store.put_file)
    tree = trees.decode(trees.encode(trees.make(SALT, packed.entries)))
    assert isinstance(tree, trees.Tree)
    target = tmp_path / "out"
    target.mkdir()
    unpacking.unpack(store, tree, target)

    assert packed.notes == ()
    assert (target / "a/b/c.txt").read_text() == "a/b/c.txt"
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "twin").stat().st_mode) == 0o644
    assert (target / "empty").is_dir()
    assert (target / "a/link").readlink() == Path("../run.sh")
    assert len(store) == 2, "the twins are one blob"


def test_the_same_folder_has_the_same_tree_wherever_it_is(tmp_path: Path) -> None:
    one = fill(tmp_path / "one", "b", "a/x", "c/y")
    other = fill(tmp_path / "other", "c/y", "a/x", "b")

    left, right = (pack_workdir(root, Naming().name).entries for root in (one, other))

    assert trees.make(SALT, left) == trees.make(SALT, right)


def test_what_leads_out_or_is_no_file_stays_and_is_said(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    (tmp_path / "abroad").symlink_to("/etc/passwd")
    (tmp_path / "above").symlink_to("../x")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))

        packed = pack_workdir(tmp_path, Naming().name)

    assert [entry.path for entry in packed.entries] == ["a"]
    assert len(packed.notes) == 4
    assert "left out: pipe, which is no file" in packed.notes


def test_a_name_that_is_no_text_stays_and_is_said(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff"))).write_text("x")

    packed = pack_workdir(tmp_path, Naming().name)

    assert [entry.path for entry in packed.entries] == ["a"]
    assert len(packed.notes) == 1


def test_a_folder_that_is_too_large_names_the_largest_in_it(tmp_path: Path) -> None:
    fill(tmp_path, "small.py")
    for name, size in (("data/a", 3_000_000), ("data/b", 2_000_000), ("m.pt", 999)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))

    with pytest.raises(UsageError) as caught:
        pack_workdir(tmp_path, Naming().name, bytes_max=1_000_000)

    assert "has 5 MB in 4 files" in caught.value.what
    assert "data/ (5 MB), m.pt (999 bytes)" in (caught.value.because or "")
    assert ".shoalignore" in (caught.value.hint or "")


def test_a_workdir_that_is_not_there_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        pack_workdir(tmp_path / "nowhere", Naming().name)


# Outputs of a task, which may have laid traps.


def outputs(root: Path, *patterns: str) -> tuple[list[str], tuple[str, ...]]:
    packed = pack_outputs(root, patterns, Naming().name, 1 << 30)
    return sorted(entry.path for entry in packed.entries), packed.notes


def test_outputs_are_folders_files_and_patterns_from_the_workdir_on(
    tmp_path: Path,
) -> None:
    fill(tmp_path, "out/a", "out/deep/b", "x.pt", "sub/x.pt", "sub/out/c", "log.txt")

    assert outputs(tmp_path, "out/")[0] == ["out/a", "out/deep/b"]
    assert outputs(tmp_path, "*.pt")[0] == ["x.pt"]
    assert outputs(tmp_path, "**/*.pt")[0] == ["sub/x.pt", "x.pt"]
    assert outputs(tmp_path, "log.txt", "sub/*/c")[0] == ["log.txt", "sub/out/c"]
    assert outputs(tmp_path, "./out/deep")[0] == ["out/deep/b"]


def test_an_output_that_is_not_there_is_said(tmp_path: Path) -> None:
    fill(tmp_path, "a")

    assert outputs(tmp_path, "a", "model/") == (
        ["a"],
        ("output 'model/' was not there",),
    )


def test_links_of_a_task_are_never_followed(tmp_path: Path) -> None:
    secret = fill(tmp_path / "home", "key", "deep/key")
    work = fill(tmp_path / "work", "out/a")
    (work / "out" / "key").symlink_to(secret / "key")
    (work / "out" / "home").symlink_to(secret)
    (work / "alias").symlink_to(secret)

    found, notes = outputs(work, "out/", "alias/", "alias/deep/key")

    assert found == ["out/a"]
    assert any("out/home" in note for note in notes)


def test_what_is_not_there_is_not_told_of_a_task_that_may_lack_it(
    tmp_path: Path,
) -> None:
    fill(tmp_path, "a")

    packed = pack_outputs(tmp_path, ["a", "b"], Naming().name, 1 << 20, may_lack=True)

    assert [each.path for each in packed.entries] == ["a"]
    assert packed.notes == ()


def test_outputs_have_a_limit(tmp_path: Path) -> None:
    fill(tmp_path, "a")

    with pytest.raises(ShoalError, match="the outputs have 1 bytes in 1 files"):
        pack_outputs(tmp_path, ["a"], Naming().name, 0)


def test_a_checkpoint_is_a_file_or_a_folder_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path, "ckpt/a", "ckpt/b", "step.pt")
    (tmp_path / "trap").symlink_to("/etc")

    def found(path: str) -> list[str]:
        return [
            entry.path for entry in pack_path(tmp_path, path, Naming().name).entries
        ]

    assert found("ckpt/") == ["ckpt/a", "ckpt/b"]
    assert found("./step.pt") == ["step.pt"]
    assert found("trap") == []
    for path in ("../x", "/etc/passwd", "trap/passwd", "nothing", ""):
        with pytest.raises(ShoalError):
            pack_path(tmp_path, path, Naming().name)


def test_a_tree_is_laid_over_files_but_never_through_links(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    work = fill(tmp_path / "work", "a", "b/c")
    (work / "a").write_text("new")
    packed = pack_workdir(work, store.put_file)
    tree = trees.make(SALT, packed.entries)
    target = fill(tmp_path / "target", "a", "other")
    outside = fill(tmp_path / "outside", "c")

    unpacking.lay_over(store, tree, target)

    assert (target / "a").read_text() == "new"
    assert (target / "b/c").read_text() == "b/c"
    assert (target / "other").exists()
    trap = fill(tmp_path / "trap", "a")
    (trap / "b").symlink_to(outside)
    with pytest.raises(ShoalError, match="links are not followed"):
        unpacking.lay_over(store, tree, trap)
    assert (outside / "c").read_text() == "c"


def test_a_damaged_blob_is_not_unpacked(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    packed = pack_workdir(fill(tmp_path / "in", "a"), store.put_file)
    blob = packed.entries[0].to
    (tmp_path / "cache" / blob[:2] / blob).write_text("b")
    (tmp_path / "out").mkdir()

    with pytest.raises(ShoalError, match="not what it should be"):
        unpacking.unpack(store, trees.make(SALT, packed.entries), tmp_path / "out")


def test_walking_needs_no_descriptor_in_the_end(tmp_path: Path) -> None:
    fill(tmp_path, *(f"d{n}/f" for n in range(50)))
    before = len(list(Path("/proc/self/fd").iterdir()))

    list(packing.walk(tmp_path, ""))
    next(packing.walk(tmp_path, "")).path  # noqa: B018 - not used up

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_outputs_deeper_than_a_tree_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "/".join(["d"] * (trees.DEPTH_MAX + 3))).mkdir(parents=True)

    with pytest.raises(ShoalError, match="more than 64 folders deep"):
        pack_outputs(tmp_path, ["**"], Naming().name, 1 << 20)


def test_reading_a_folder_tells_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (packing.READ_BYTES + 1))
    (tmp_path / "small").write_bytes(b"y" * 5)
    told: list[tuple[int, int]] = []

    naming = Naming(lambda done, total: told.append((done, total)))
    pack_workdir(tmp_path, naming.name, expect=naming.expect)

    total = packing.READ_BYTES + 6
    assert told == [
        (packing.READ_BYTES, total),
        (packing.READ_BYTES + 1, total),
        (total, total),
    ]
