"""Every command must feel instant, so starting one loads nothing it can spare."""

from tests.loading import modules_after


def test_starting_the_command_line_imports_no_command() -> None:
    loaded = modules_after("import shoal.cli")

    slow = [m for m in loaded if m in ("numpy", "yaml", "rich")]
    ours = [m for m in loaded if m.startswith("shoal.")]
    assert slow == []
    assert ours == ["shoal.cli", "shoal.cli.exit_codes", "shoal.errors"]
