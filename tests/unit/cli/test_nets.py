"""Several shoals on one machine, by name: flag over variable over files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import cli
from shoal.errors import UsageError
from shoal.runtime.home import Home


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let nothing be set but by the test; what commands set is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("SHOAL_NET", "")
    monkeypatch.setenv("SHOAL_HOME", "")
    for name in ("SHOAL_NET", "SHOAL_HOME", "SHOAL_NODE"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name in ("SHOAL_NET", "SHOAL_HOME"):
        os.environ.pop(name, None)


def looked_in(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Return the home in which `shoal ps` looked for a node."""
    with pytest.raises(SystemExit) as exit_:
        cli.main([*args, "ps"])
    assert exit_.value.code == 105
    told = capsys.readouterr().err
    return told.partition("node.json in ")[2].partition("\n")[0]


def test_a_flag_wins_over_a_variable_and_that_over_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nets = place / "data" / "shoal" / "nets"

    assert looked_in(capsys) == str(place / "data" / "shoal")
    (place / "shoal.toml").write_text('net = "project"\n')
    assert looked_in(capsys) == str(nets / "project")
    monkeypatch.setenv("SHOAL_NET", "env")
    assert looked_in(capsys) == str(nets / "env")
    monkeypatch.setenv("SHOAL_HOME", str(place / "own"))
    assert looked_in(capsys) == str(place / "own")
    assert looked_in(capsys, "--net", "lab") == str(nets / "lab")


def test_what_to_do_next_names_the_net(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--net", "lab", "ps"])

    assert "`shoal --net lab up` starts one" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x" * 65, "-x", "a b"])
def test_a_name_that_would_lead_elsewhere_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_NET", name)

    if not name:
        assert Home.default().net == ""
        return
    with pytest.raises(UsageError, match="cannot be the name of a net"):
        Home.default()


def test_a_home_knows_its_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_NET", "lab")

    assert Home.default().net == "lab"


def test_what_to_type_next_stays_in_the_net(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--net", "lab", "set", "color", "true"])

    assert "next: shoal --net lab set --show-origin\n" in capsys.readouterr().err
