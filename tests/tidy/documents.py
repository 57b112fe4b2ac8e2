"""What documents promise: links that lead somewhere, commands and samples that work.

Each check returns one line of text for each breach, and none when all is well.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
OUTSIDE = re.compile(r"[a-z]+:|//")


class Block(NamedTuple):
    """A block of code; `kind` is what stands behind the backticks."""

    kind: str
    text: str


class Sample(NamedTuple):
    """A block and the output that the document shows right after it, if any."""

    block: Block
    output: str | None


def blocks(document: str) -> list[Block]:
    """Return the fenced blocks of a document, in order."""
    return [Block(kind.strip(), text) for kind, text in FENCE.findall(document)]


def samples(document: str, kind: str) -> list[Sample]:
    """Return the blocks of a kind; a `text` block after one is its output."""
    found = blocks(document)
    return [
        Sample(block, after.text if after.kind == "text" else None)
        for block, after in pairwise([*found, Block("", "")])
        if block.kind == kind
    ]


def broken_links(path: Path, document: str) -> list[str]:
    """Find relative links to files or headings that are not there."""
    prose = FENCE.sub("", document)
    targets = [one or other for one, other in LINK.findall(prose)]
    return [
        f"'{target}' leads nowhere"
        for target in targets
        if not OUTSIDE.match(target) and not _leads_somewhere(path, target)
    ]


def unknown_targets(document: str, known: Collection[str]) -> list[str]:
    """Find `make` commands in blocks that name a target the Makefile lacks."""
    return [
        f"no target '{word}' for `{line}`"
        for block in blocks(document)
        for line in map(_command, block.text.splitlines())
        if line.startswith("make ")
        for word in line.split()[1:]
        if "=" not in word and not word.startswith(("-", '"')) and word not in known
    ]


def targets(makefile: str) -> list[str]:
    """Return the targets of a Makefile that people type."""
    return re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)


def anchors(document: str) -> list[str]:
    """Return the names under which headings can be linked to."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", document), re.MULTILINE)
    return [_anchor(heading) for heading in headings]


def _anchor(heading: str) -> str:
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.strip().replace(" ", "-")


def _command(line: str) -> str:
    """Return the command of a line, without the prompt and what explains it."""
    return line.strip().removeprefix("$ ").partition(" #")[0].strip()


def _leads_somewhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return False
    return not anchor or anchor in anchors(file.read_text(encoding="utf-8"))


def documents(root: Path, skipped: Iterable[str] = (".venv", ".git")) -> list[Path]:
    """Return all documents of the repository."""
    return sorted(
        path
        for path in root.rglob("*.md")
        if not set(path.relative_to(root).parts) & {*skipped, ".pytest_cache"}
    )


def transcripts(document: str) -> list[tuple[str, str]]:
    """Return each command that a `console` block shows after `$ `, and its output."""
    return [
        (command, output)
        for block in blocks(document)
        if block.kind == "console"
        for command, output in re.findall(
            r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE
        )
    ]


def table(document: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading, without its head."""
    text = f"\n{document}".partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named(text: str) -> list[str]:
    """Return what a text has between backticks."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def wrong_figures(document: str, real: Mapping[str, int]) -> list[str]:
    """Find figures such as "46 failpoints" that are not the real ones."""
    return [
        f"'{number} {what}', but there are {real[what]}"
        for what in real
        for number in re.findall(rf"\b(\d+)\s+{what}\b", document)
        if int(number) != real[what]
    ]
