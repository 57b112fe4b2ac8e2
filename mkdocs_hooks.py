"""What mkdocs cannot do by itself: pages from outside docs/, and links that leave it.

README, CONTRIBUTING, CHANGELOG and SECURITY stay where a forge looks for them, and are
pages of the site too. Links between them and docs/ are rewritten. A link to any other
file of the repository becomes its text: the site does not know where the source is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent
BORROWED: Final = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
}
LINK: Final = re.compile(
    r"(?P<head>!?\[(?P<text>[^\]]*)\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)
IMAGE: Final = re.compile(r'<img src="(?P<target>[^"]+)" alt="(?P<text>[^"]*)"[^>]*>')
OUTSIDE: Final = re.compile(r"[a-z]+:|//")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List every decision in the navigation."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert config.nav is not None
    config.nav[-1] = {"Decisions": [f"decisions/{page.name}" for page in pages]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live outside docs/."""
    for source, name in BORROWED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        page = File.generated(config, name, content=text)
        page.inclusion = InclusionLevel.INCLUDED
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite links that mean something else on the site than in the repository."""
    name = page.file.src_uri
    source = {new: ROOT / old for old, new in BORROWED.items()}.get(name)
    path = source or ROOT / "docs" / name
    markdown = IMAGE.sub(r"![\g<text>](\g<target>)", markdown)  # mkdocs skips HTML.
    return LINK.sub(lambda match: _link(path, name, match), markdown)


def _link(path: Path, name: str, match: re.Match[str]) -> str:
    target = _target(path, name, match["target"])
    if not target:
        return match["text"]
    return f"{match['head']}{target}{match['anchor'] or ''})"


def _target(path: Path, name: str, target: str) -> str:
    """Return what a link of a source file is on its page; empty if it leads outside."""
    if OUTSIDE.match(target):
        return target
    file = Path(os.path.normpath(path.parent / target))
    place = os.path.relpath(file, ROOT)
    if place in BORROWED:
        return os.path.relpath(BORROWED[place], Path(name).parent)
    if not place.startswith("docs/"):
        return ""
    return os.path.relpath(place.removeprefix("docs/"), Path(name).parent)
