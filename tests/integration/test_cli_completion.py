"""What a shell offers after `shoal`, with a real node to ask."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration

ASK = """
eval "$(shoal completion bash)"
COMP_WORDS=(shoal {words} ''); COMP_CWORD={place}
_shoal_completion shoal
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    with homes(tmp_path) as make:
        yield make("home")


def offered(home: CliHome, words: str) -> list[str]:
    script = ASK.format(words=words, place=1 + len(words.split()))
    command = ["bash", "--norc", "-c", script]
    done = subprocess.run(
        command, env=home.env, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def test_bash_offers_commands_jobs_and_nodes(home: CliHome) -> None:
    home.up("-q")
    job = home.ok("submit", "-q", "--", "true").strip()

    assert {"run", "submit", "completion"} <= set(offered(home, ""))
    assert offered(home, "show") == ["last", job]
    assert offered(home, "cancel") == ["last", "all", job]
    assert offered(home, "revoke") == [home.info["petname"]]


def test_without_a_node_nothing_is_offered_and_nothing_is_said(home: CliHome) -> None:
    assert offered(home, "show") == ["last"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(home: CliHome, shell: str) -> None:
    assert "_SHOAL_COMPLETE" in home.ok("completion", shell)
