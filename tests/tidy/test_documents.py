"""Documents keep what they promise: see `documents`."""

import contextlib
import io
import re
import shlex
import tomllib
from pathlib import Path

import attacks.__main__  # noqa: F401 - It registers every attack.
import pytest
from attacks.verdict import ATTACKS
from tests.sim import planted
from tests.tidy import documents

from shoal import failpoints
from shoal.cli import explained, main
from shoal.errors import ShoalError
from shoal.model.derive import derive
from shoal.model.gpu import format_gpu, parse_gpu
from shoal.model.ids import JobId, OwnerId
from shoal.model.spec.submission import Format, load_spec

ROOT = Path(__file__).parents[2]
DOCUMENTS = documents.documents(ROOT)
SRC = ROOT / "src" / "shoal"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CHANGELOG = ROOT / "CHANGELOG.md"
SPEC = ROOT / "docs" / "job-spec.md"
SOURCE_PATH = re.compile(r"[a-z_0-9]+(/[a-z_0-9]+)*/[a-z_0-9]+\.(py|proto)")
PROMISE = re.compile(r"\"([ABCDEFGHIKLMNOQVWXYZ]\d{1,2}|[A-Z]{4,})\"")
CHECKED_ELSEWHERE = {"I11", "I13"}  # On real processes; by comparing two runs.
TARGETS = documents.targets((ROOT / "Makefile").read_text(encoding="utf-8"))


def every(kind: str) -> list[documents.Sample]:
    """Return the samples of a kind in all documents."""
    return [
        sample
        for path in DOCUMENTS
        for sample in documents.samples(path.read_text(encoding="utf-8"), kind)
    ]


def every_command_of_shoal() -> list[tuple[str, str]]:
    """Return the commands of shoal in transcripts, and their outputs."""
    return [
        (command, output)
        for path in DOCUMENTS
        for command, output in documents.transcripts(path.read_text(encoding="utf-8"))
        if command.startswith("shoal ")
    ]


def derived(text: str, format_: Format) -> str:
    """Derive a job; return what the command line would print if it is wrong."""
    try:
        derive(load_spec(text, format_), JobId("j"), OwnerId("ann"))
    except ShoalError as error:
        return explained(error)
    return ""


def rows_of_gpus() -> list[tuple[str, str]]:
    """Return the first two columns of the table of GPU needs."""
    text = SPEC.read_text(encoding="utf-8").partition("## The GPU grammar")[2]
    table = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    return [(row[1].strip(" `"), row[2].strip(" `")) for row in table if len(row) == 5]


# The checks themselves.


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# The way\n", encoding="utf-8")

    for wrong in ("[a](b.md)", "[a](#nowhere)", "[a](page.md#no)", '<img src="x.svg">'):
        assert len(documents.broken_links(page, wrong)) == 1
    for right in ("[a](page.md#the-way)", "[a](https://x.org/y)", "[a](.)"):
        assert documents.broken_links(page, right) == []


def test_a_command_without_a_target_is_found() -> None:
    block = "```\n$ make swim   # as fish do\nmake test SEEDS=3 -j\n```\n"

    assert documents.unknown_targets(block, ["test"]) == [
        "no target 'swim' for `make swim`"
    ]
    assert documents.unknown_targets(block, ["test", "swim"]) == []


def test_a_text_block_belongs_to_the_block_before_it() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\n2\n```\n"

    first, second = documents.samples(page, "python")

    assert (first.block.text, first.output) == ("print(1)\n", "1\n")
    assert (second.block.text, second.output) == ("2\n", None)


def test_a_transcript_is_commands_each_with_its_output() -> None:
    page = "```console\n$ swim\nsplash\n\n$ eat --all\n$ rest\nzzz\n```\n"

    assert documents.transcripts(page) == [
        ("swim", "splash\n\n"),
        ("eat --all", ""),
        ("rest", "zzz\n"),
    ]


def test_a_table_is_the_first_one_under_its_heading() -> None:
    page = "## A\n\n| x |\n|---|\n| `1` | b |\n\n## B\n\n| y |\n|---|\n| 2 |\n"

    assert documents.table(page, "A") == [["`1`", "b"]]
    assert documents.table(page, "B") == [["2"]]
    assert documents.named("`a/b` and `c`") == ["a/b", "c"]


def test_a_figure_that_is_not_the_real_one_is_found() -> None:
    real = {"failpoints": 3}

    assert documents.wrong_figures("3 failpoints, 13\nthings", real) == []
    assert documents.wrong_figures("13\nfailpoints", real) == [
        "'13 failpoints', but there are 3"
    ]


# The documents.


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.name))
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    assert documents.broken_links(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.name))
def test_every_make_command_has_a_target(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert documents.unknown_targets(text, TARGETS) == []


def test_there_are_samples_to_check() -> None:
    assert len(every("yaml")) > 5
    assert len(every("yaml wrong")) > 5
    assert len(every("python")) > 1
    assert len(every_command_of_shoal()) > 0
    assert len(rows_of_gpus()) > 5


def test_the_architecture_describes_every_room_and_no_other() -> None:
    packages = [path.parent for path in SRC.rglob("__init__.py")]
    rooms = {str(path.relative_to(SRC)) for path in packages if path != SRC}
    rows = documents.table(ARCHITECTURE.read_text(encoding="utf-8"), "Rooms")
    described = [name for row in rows for name in documents.named(row[0])]

    assert described == sorted(rooms)
    assert [row for row in rows if not row[1]] == []


def test_the_layers_of_the_architecture_are_those_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["id"] == "layers"]
    rows = documents.table(ARCHITECTURE.read_text(encoding="utf-8"), "Layers")

    assert [documents.named(row[0]) for row in rows] == [
        layer.split(" | ") for layer in layers
    ]


def test_every_path_of_source_code_in_the_documents_exists() -> None:
    texts = [p.read_text(encoding="utf-8") for p in DOCUMENTS if p != CHANGELOG]
    names = {name for text in texts for name in documents.named(text)}
    paths = {name for name in names if SOURCE_PATH.fullmatch(name)}
    found = {path for path in paths for at in (SRC, ROOT) if (at / path).exists()}

    assert sorted(paths - found) == []
    assert len(paths) > 60


def test_every_figure_in_the_documents_is_the_real_one() -> None:
    real = {
        "failpoints": len(failpoints.NAMES),
        "decisions": len(list((ROOT / "docs" / "decisions").glob("*.md"))),
        "attacks": len(ATTACKS),
        "planted bugs": len(planted.BUGS),
    }
    texts = [p.read_text(encoding="utf-8") for p in DOCUMENTS if p != CHANGELOG]

    assert [w for text in texts for w in documents.wrong_figures(text, real)] == []
    assert f"{real['failpoints']} failpoints" in "".join(texts)


def test_every_promise_that_is_checked_is_described_and_no_other() -> None:
    checkers = [p.read_text(encoding="utf-8") for p in (SRC / "sim").rglob("*.py")]
    checked = {id_ for text in checkers for id_ in PROMISE.findall(text)}
    page = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    rows = documents.table(page, "The promises, and what checks each")
    described = {row[0].removeprefix("**").partition("**")[0] for row in rows}

    assert described - CHECKED_ELSEWHERE == checked


def test_the_site_and_the_index_list_every_page() -> None:
    docs = ROOT / "docs"
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    index = (docs / "index.md").read_text(encoding="utf-8")
    pages = [path for path in docs.rglob("*.md") if path.parent.name != "decisions"]
    names = sorted(str(path.relative_to(docs)) for path in pages)

    assert [name for name in names if f": {name}\n" not in site] == []
    assert [n for n in names if f"({n})" not in index and n != "index.md"] == []


def test_the_index_of_documents_lists_every_decision() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = {p: p.read_text(encoding="utf-8").partition("\n")[0] for p in decisions}

    assert [
        line
        for path, title in titles.items()
        if (line := f"- [{title[2:]}](decisions/{path.name})") not in index
    ] == []


@pytest.mark.parametrize("sample", every("yaml"))
def test_every_spec_shown_is_a_job(sample: documents.Sample) -> None:
    assert derived(sample.block.text, "yaml") == ""


@pytest.mark.parametrize("sample", every("json"))
def test_every_json_shown_is_a_job(sample: documents.Sample) -> None:
    assert derived(sample.block.text, "json") == ""


@pytest.mark.parametrize("sample", every("yaml wrong"))
def test_every_wrong_spec_shown_gets_the_answer_shown(
    sample: documents.Sample,
) -> None:
    assert sample.output == derived(sample.block.text, "yaml") + "\n"


@pytest.mark.parametrize(("written", "understood"), rows_of_gpus())
def test_every_gpu_need_shown_is_understood_as_shown(
    written: str, understood: str
) -> None:
    assert format_gpu(parse_gpu(written)) == understood


@pytest.mark.parametrize(
    "path",
    [p for p in sorted((ROOT / "examples").glob("*.*")) if p.suffix != ".py"],
)
def test_every_example_is_a_job(path: Path) -> None:
    format_: Format = "json" if path.suffix == ".json" else "yaml"

    assert derived(path.read_text(encoding="utf-8"), format_) == ""


@pytest.mark.parametrize(("command", "output"), every_command_of_shoal())
def test_every_command_shown_prints_what_is_shown(
    command: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        main(shlex.split(command)[1:])

    assert capsys.readouterr().out.strip() == output.strip()


@pytest.mark.parametrize("sample", every("python"))
def test_every_program_shown_prints_what_is_shown(
    sample: documents.Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()

    with contextlib.redirect_stdout(printed):
        exec(compile(sample.block.text, "sample", "exec"), {"__name__": "sample"})

    assert printed.getvalue() == (sample.output or "")
