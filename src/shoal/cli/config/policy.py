"""`shoal policy`: list policies, and check that one keeps its promises."""

import sys
from functools import partial
from random import Random

import click

from shoal.cli.display.printing import echo_json
from shoal.cli.exit_codes import ExitCode
from shoal.cli.options import json_option
from shoal.cli.terminal import echo
from shoal.policy.conformance import MEANINGS, PromiseVerdict, check
from shoal.policy.registry import BUILT_IN, DEFAULT, Registry

SEED = 7


@click.group()
def policy() -> None:
    """List and test placement policies."""


@policy.command("list")
@json_option
def list_policies(as_json: bool) -> None:
    """List the policies of shoal and of installed packages."""
    registry = Registry()
    rows = [
        {
            "name": name,
            "origin": "shoal" if name in BUILT_IN else "installed",
            "default": name == DEFAULT,
            "about": _about(name),
        }
        for name in registry.names()
    ]
    if as_json:
        echo_json({"policies": rows})
        return
    width = max(len(name) for name in registry.names())
    for row in rows:
        mark = "*" if row["default"] else " "
        echo(f"{mark} {row['name']:<{width}}  {row['origin']:<9}  {row['about']}")


@policy.command("test")
@click.argument("name")
@json_option
def test_policy(name: str, as_json: bool) -> None:
    """Check that the policy NAME keeps the promises of every policy."""
    registry = Registry()
    registry.get(name)  # One that cannot be loaded is an error, not a verdict.
    verdicts = check(partial(registry.make, name), Random(SEED))
    kept = all(verdict.kept for verdict in verdicts)
    if as_json:
        rows = [{"check": v.check, "kept": v.kept, "how": v.how} for v in verdicts]
        echo_json({"policy": name, "kept": kept, "checks": rows})
    else:
        for verdict in verdicts:
            echo(_line(verdict))
        echo(f"{name} keeps all promises" if kept else f"{name} breaks promises")
    sys.exit(ExitCode.OK if kept else ExitCode.ERROR)


def _line(verdict: PromiseVerdict) -> str:
    mark = "ok  " if verdict.kept else "FAIL"
    line = f"{mark}  {verdict.check:<18}  {MEANINGS[verdict.check]}"
    return line if verdict.kept else f"{line}\n      {verdict.how}"


def _about(name: str) -> str:
    if name not in BUILT_IN:
        return ""
    return (BUILT_IN[name].__doc__ or "").partition("\n")[0]
