"""Every command must feel instant, so starting one loads nothing it can spare."""

from tests.loading import modules_after


def test_starting_the_command_line_imports_no_command() -> None:
    loaded = modules_after("import shoal.cli")

    slow = [m for m in loaded if m in ("numpy", "yaml", "rich")]
    ours = [m for m in loaded if m.startswith("shoal.")]
    assert slow == []
    small = ["shoal.cli.exit_codes", "shoal.cli.terminal"]
    assert ours == ["shoal.cli", *small, "shoal.errors"]


def test_whoever_is_interrupted_at_once_is_so_where_that_is_caught() -> None:
    before, loaded = modules_after(""), modules_after("import shoal.entry")

    assert [m for m in loaded if m not in before] == ["shoal", "shoal.entry"]
