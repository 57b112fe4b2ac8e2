"""The first commands of README and docs/cli.md do what is said, typed as they stand."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.transcripts import Session

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"^\$ cat train\.sh\n(.*?)^\$ ", re.MULTILINE | re.DOTALL)
OWN = {
    "train.yaml": "command: python train.py --lr {lr}\nparams: {lr: 0.1}\nworkdir: .\n",
    "mypackage/__init__.py": "",
    "mypackage/train.py": "print('from the package')\n",
}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Sit down at a machine without a node, in a folder with a program of one's own."""
    made = Session(tmp_path, ROOT / "examples")
    made.play("a$ true\n")
    work = tmp_path / "a" / "work"
    shutil.copy(ROOT / "examples" / "train.py", work)
    for name, text in OWN.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    yield made
    made.close()


def section(page: str, title: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def typed(text: str, start: str) -> list[str]:
    lines = "".join(BLOCK.findall(text)).splitlines()
    words = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return [word.partition("  #")[0].rstrip() for word in words]


def test_the_taste_of_the_readme_is_as_it_says(session: Session) -> None:
    commands = typed(section("README.md", "A taste"), ".venv/bin/")

    for command in commands:
        session.play(f"a$ {command}\n...\n")

    assert len(commands) == 3
    session.play("a$ shoal ps -q | wc -l\n2\n")


def test_the_first_five_minutes_are_as_they_say(session: Session) -> None:
    text = section("docs/cli.md", "The first five minutes")
    commands = typed(text, "$ ")
    script = SCRIPT.search(text)
    assert script is not None
    work = session.machines["a"].path.parent / "work"
    (work / "train.sh").write_text(script[1], encoding="utf-8")

    for command in commands:
        session.play(f"a$ {command}\n...\n")

    assert len(commands) == 9
    session.play(
        "a$ shoal run -- python train.py\nnote: train.py is here...\n...\n(exit 2)\n"
    )
    session.play("a$ shoal logs 2\n...\nepoch 9 loss ...\n")
    session.play("a$ shoal logs 3\nfrom the package\n")
