"""Every command must feel instant, so starting one loads nothing it can spare."""

import subprocess
import sys


def test_starting_the_command_line_imports_no_command() -> None:
    script = (
        "import sys, shoal.cli; print(sorted(m for m in sys.modules if "
        "m in ('numpy', 'yaml', 'rich') or m.startswith('shoal.')))"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout

    assert loaded.strip() == "['shoal.cli', 'shoal.cli.exit_codes', 'shoal.errors']"
