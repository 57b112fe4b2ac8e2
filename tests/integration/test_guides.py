"""The guides of a day: every command in them is typed, on a real node."""

import re
from pathlib import Path

import pytest
from tests.integration.test_notebook import FAKE
from tests.integration.transcripts import Session
from tests.integration.wheels import index_of, make_wheel

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^(?:`(\S+)`:\n\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


HUMANIZE = "def intcomma(number):\n    return f'{number:,}'\n"


@pytest.mark.parametrize(
    "guide",
    [
        "first-job",
        "environments",
        "data",
        "housekeeping",
        "interactive",
        "notebooks",
        "sweeps",
    ],
)
def test_a_guide_does_what_it_says(
    guide: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    index = tmp_path_factory.mktemp("index")
    index.chmod(0o755)
    index.parent.chmod(0o755)
    make_wheel(index, "humanize", "4.9.0", HUMANIZE)
    make_wheel(index, "jupyterlab", "4.0", FAKE)
    session = Session(tmp_path, ROOT / "examples", index_of(index))
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text(encoding="utf-8")
    commands = 0
    try:
        session.play("a$ shoal up --background -q --port 0\n")
        for name, kind, body in BLOCK.findall(text):
            if name:
                (tmp_path / "a" / "work" / name).write_text(body, encoding="utf-8")
            elif kind == "shell":
                session.play(re.sub(r"^\$ ", "a$ ", body, flags=re.MULTILINE))
                commands += body.count("\n$ ") + 1
    finally:
        session.close()

    assert commands >= 4
