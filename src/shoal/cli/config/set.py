"""`shoal set`: set defaults for command-line flags."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import click

from shoal.cli.config.settings import (
    SETTINGS,
    FoundSetting,
    Setting,
    Value,
    as_variable,
    current,
    parsed,
)
from shoal.cli.config.settings import setting_of as known
from shoal.cli.display.printing import echo_json, echo_table
from shoal.cli.options import check_labels, json_option, quiet_option, suggest, talk
from shoal.cli.terminal import echo
from shoal.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from shoal.cli.config.settings import UserSettings


class SettingName(click.ParamType[str]):
    """The name of a setting, with shell completion."""

    name = "setting"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Accept the spelling of the flag too: task-network is task_network."""
        return value.replace("-", "_")

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the names of settings."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - Rare.

        return [
            CompletionItem(setting.name, help=setting.about)
            for setting in SETTINGS.values()
            if setting.name.startswith(incomplete)
        ]


@click.command("set")
@click.argument("name", required=False, type=SettingName())
@click.argument("value", required=False)
@click.option("--here", is_flag=True, help="Write to shoal.toml in this folder.")
@click.option("--unset", is_flag=True, help="Remove NAME.")
@click.option("--show-origin", is_flag=True, help="Show where each value comes from.")
@json_option
@quiet_option
def set_(
    name: str | None,
    value: str | None,
    here: bool,
    unset: bool,
    show_origin: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Set the default NAME to VALUE; without a value, print it.

    Without a name, list all settings. The order of precedence is: the flag, the
    environment variable SHOAL_NAME, shoal.toml in this folder, your own file, the
    built-in default.
    """
    settings = current()
    if name is None and unset:
        raise UsageError(
            "--unset without a name",
            because="it removes one setting",
            hint="shoal set NAME --unset; `shoal set` lists all names",
        )
    if name is None:
        _list(settings, show_origin=show_origin, as_json=as_json)
        return
    setting = known(name)
    if value is None and not unset:
        _show(setting, settings.find(name), show_origin, as_json=as_json)
        return
    if value is not None and unset:
        raise UsageError(
            f"a value for {name} and --unset contradict each other",
            hint="use one of them",
        )
    path = settings.project if here else settings.own
    new = None if value is None else _valid(setting, value)
    _write(settings, path, setting, new)
    talk(f"{name} is {_text(new)}, in {path}", quiet=quiet)
    _warn_of_what_wins(settings, setting, path, quiet=quiet)
    suggest("shoal set --show-origin", quiet=quiet)


def _list(settings: UserSettings, *, show_origin: bool, as_json: bool) -> None:
    found = {name: settings.find(name) for name in SETTINGS}
    if as_json:
        echo_json({"settings": [_fields(name, found[name]) for name in found]})
        return
    last = "FROM" if show_origin else "MEANS"
    rows = [
        (name, _text(value), origin if show_origin else SETTINGS[name].about)
        for name, (value, origin) in found.items()
    ]
    echo_table(("NAME", "VALUE", last), rows)


def _show(
    setting: Setting, found: FoundSetting, show_origin: bool, *, as_json: bool
) -> None:
    if as_json:
        echo_json({"settings": [_fields(setting.name, found)]})
    elif show_origin:
        echo(f"{_text(found.value)}  ({found.origin})")
    else:
        echo(_text(found.value))


def _fields(name: str, found: FoundSetting) -> dict[str, object]:
    return {"name": name, "value": found.value, "origin": found.origin}


def _text(value: Value | None) -> str:
    return "-" if value is None or value == () else as_variable(value)


def _valid(setting: Setting, text: str) -> Value:
    """Parse a value and check it as far as possible without a node."""
    from shoal.model.kinds import allowed  # noqa: PLC0415 - Slow to import.
    from shoal.model.units import parse_size  # noqa: PLC0415
    from shoal.runtime.discovery.listen_addresses import listen_address  # noqa: PLC0415

    value = parsed(setting, text, of=setting.name)
    match setting.name:
        case "allow":
            allowed(text)
        case "cache":
            parse_size(text)
        case "api" | "listen" | "metrics" | "node":
            listen_address(text)
        case "policy":
            from shoal.policy.registry import Registry  # noqa: PLC0415 - Slow.

            Registry().get(text)
        case "net":
            from shoal.runtime.home import checked_net  # noqa: PLC0415 - Rare.

            checked_net(text)
        case "port":
            _check_port(text)
        case "labels":
            hint = "write it like shoal set labels leaf=rack7,zone=eu"
            check_labels(text.split(","), hint)
        case _:
            pass
    return value


def _check_port(text: str) -> None:
    if int(text) > 65_535:
        raise UsageError(
            f"{text} is not a port",
            because="the highest port is 65535",
            hint="shoal set port 0",
        )


def _write(
    settings: UserSettings, path: Path, setting: Setting, value: Value | None
) -> None:
    """Change one line of a file and leave the others alone."""
    before = settings.read(path)  # Nothing is written to a file that is broken.
    wanted = {name: old for name, old in before.items() if name != setting.name}
    if value is not None:
        wanted[setting.name] = value
    text = path.read_text(encoding="utf-8") if before or path.exists() else ""
    new = _edited(text, setting.name, value)
    if settings.checked(path, new) != wanted:
        raise UsageError(
            f"cannot change {setting.name} in {path}",
            because="its value spans several lines there",
            hint="edit that file by hand",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text(new, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}",
            because=error.strerror or str(error),
            hint=f"set {setting.variable} in the environment instead",
        ) from None


def _edited(text: str, name: str, value: Value | None) -> str:
    assigns = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
    lines = [line for line in text.splitlines() if not assigns.match(line)]
    if value is not None:
        shown = list(value) if isinstance(value, tuple) else value
        # The texts, numbers and lists of JSON are those of TOML too.
        lines.append(f"{name} = {json.dumps(shown, ensure_ascii=False)}")
    return "".join(f"{line}\n" for line in lines)


def _warn_of_what_wins(
    settings: UserSettings, setting: Setting, path: Path, *, quiet: bool
) -> None:
    found = type(settings)(settings.project, settings.own).find(setting.name)
    if found.origin not in (str(path), "default"):
        won = f"{found.origin} sets it to {_text(found.value)}, which wins here"
        talk(f"note: {won}", quiet=quiet)
