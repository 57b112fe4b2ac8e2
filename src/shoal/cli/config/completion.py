"""`shoal completion`: complete commands, flags, jobs and nodes in the shell."""

from __future__ import annotations

import sys
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from shoal.cli.options import talk
from shoal.cli.terminal import echo_lines

VARIABLE: Final = "_SHOAL_COMPLETE"
SHELLS: Final = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
INSTALL: Final = {
    "bash": 'eval "$(shoal completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(shoal completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "shoal completion fish > ~/.config/fish/completions/shoal.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    root = click.get_current_context().find_root().command
    echo_lines(SHELLS[shell](root, {}, "shoal", VARIABLE).source())
    if sys.stdout.isatty():
        talk(f"to install it for good: {INSTALL[shell]}")
