"""User settings: from the environment, the project folder or the user's own file.

The order of precedence is: flag, variable `SHOAL_NAME`, `shoal.toml` in the working
folder, the user's own file, built-in default. Every command imports this module, so
it imports nothing slow unless there is a file to read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast, final

import click

from shoal.errors import ShoalError, UsageError, did_you_mean

Kind = Literal["text", "flag", "number", "list"]
Value = str | bool | int | tuple[str, ...]

KINDS: Final[dict[Kind, str]] = {
    "text": "a quoted string",
    "flag": "true or false",
    "number": "a whole number",
    "list": "a list of strings",
}
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})
PROJECT_FILE: Final = "shoal.toml"
_META: Final = "shoal.settings"


@final
class Setting(NamedTuple):
    """A setting.

    Settings that open this machine to others are `personal`: a project folder, which
    may come from somebody else, cannot set them.
    """

    name: str
    kind: Kind
    about: str
    default: Value | None = None
    personal: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"SHOAL_{self.name.upper()}"


_ALL: Final = (
    Setting(
        "allow",
        "text",
        "kinds of tasks allowed here: command, image, recipe",
        None,
        True,
    ),
    Setting("api", "text", "HOST:PORT for clients on other machines", None, True),
    Setting("cache", "text", "disk space for cached code and data, such as 20GB"),
    Setting("color", "flag", "colours in a terminal", default=True),
    Setting("containers", "flag", "run other members' container images", True, True),
    Setting("environments", "text", "disk space for environments and caches of jobs"),
    Setting("forward", "flag", "let other nodes of yours have jobs that wait", False),
    Setting("functions", "flag", "run other members' functions", True, True),
    Setting("keep_for", "text", "how long ended jobs are kept, such as 30d"),
    Setting("keep_jobs", "number", "how many ended jobs are kept"),
    Setting("keep_size", "text", "how much ended jobs may keep, such as 50GB"),
    Setting("keepers", "number", "other nodes of yours that keep each job: 0, 2, 4"),
    Setting("labels", "list", "labels that jobs can require, such as leaf=rack7"),
    Setting("listen", "text", "HOST:PORT for other nodes", None, True),
    Setting("metrics", "text", "HOST:PORT of the Prometheus endpoint", None, True),
    Setting("net", "text", "which home to use, if you have several"),
    Setting("node", "text", "node to talk to, by HOST:PORT or name"),
    Setting(
        "overlay",
        "text",
        "which neighbours hear of free room: random, flood, mst, nearest",
        "random",
    ),
    Setting("policy", "text", "how to rank workers"),
    Setting("port", "number", "port for local clients; 50051 if it is free"),
    Setting("pythons", "list", "Python environments to lend: NAME=FOLDER", None, True),
    Setting("sandbox", "flag", "confine tasks", True, True),
    Setting("shares", "list", "folders to lend: NAME=FOLDER:rw", None, True),
    Setting(
        "lend",
        "text",
        "when other owners' tasks run here: always, idle, away, nights, weekends, "
        "22:00-07:00, plugged-in",
        "always",
        True,
    ),
    Setting(
        "owner_input",
        "list",
        "files that are touched when you use the machine, or: terminals, desktop",
        (),
        True,
    ),
    Setting(
        "strangers",
        "text",
        "whose tasks run here besides your own: no, confined, limited, any",
        None,
        True,
    ),
    Setting(
        "task_network",
        "text",
        "network access for other owners' tasks: none, internet, all",
        "none",
        True,
    ),
    Setting("web", "text", "HOST:PORT of the web page, or off", None, True),
)
SETTINGS: Final = {setting.name: setting for setting in _ALL}


class FoundSetting(NamedTuple):
    """A value and its origin: a variable, a file, or "default"."""

    value: Value | None
    origin: str


def setting_of(name: str, *, where: str = "") -> Setting:
    """Return the setting of this name, or suggest the nearest one."""
    if name in SETTINGS:
        return SETTINGS[name]
    raise UsageError(
        f"there is no setting '{name}'{where}",
        because=f"the settings are {', '.join(SETTINGS)}",
        hint=did_you_mean(name, SETTINGS) or "`shoal set` lists them all",
    )


def parsed(setting: Setting, text: str, *, of: str) -> Value:
    """Parse the value of a setting from the command line or a variable."""
    match setting.kind:
        case "text":
            return text
        case "list":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        case "number":
            if text.isdecimal():
                return int(text)
        case "flag":
            if text.lower() in TRUE | FALSE:
                return text.lower() in TRUE
    raise UsageError(
        f"{of} is '{text}'",
        because=f"{setting.name} is {KINDS[setting.kind]}",
        hint=f"it says {setting.about}",
    )


@final
class UserSettings:
    """Settings from outside the command line. Files are read on first use."""

    def __init__(self, project: Path, own: Path) -> None:
        self.project = project
        self.own = own
        self._read: dict[Path, dict[str, Value]] = {}

    @classmethod
    def usual(cls) -> UserSettings:
        """Return the settings for this process's working folder and user."""
        base = os.environ.get("XDG_CONFIG_HOME")
        config = Path(base) if base else Path("~/.config").expanduser()
        return cls(Path(PROJECT_FILE), config / "shoal" / "config.toml")

    def find(self, name: str) -> FoundSetting:
        """Return the effective value of a setting and its origin."""
        setting = SETTINGS[name]
        text = os.environ.get(setting.variable)
        if text:
            value = parsed(setting, text, of=f"the variable {setting.variable}")
            return FoundSetting(value, setting.variable)
        for path in (self.project, self.own):
            if name in (values := self.read(path)):
                return FoundSetting(values[name], str(path))
        return FoundSetting(setting.default, "default")

    def read(self, path: Path) -> dict[str, Value]:
        """Return the settings in a file; none if the file does not exist."""
        if path not in self._read:
            text = _text_of(path)
            self._read[path] = {} if text is None else self.checked(path, text)
        return self._read[path]

    def checked(self, path: Path, text: str) -> dict[str, Value]:
        """Return the settings in the text of a file; errors name the line."""
        import tomllib  # noqa: PLC0415 - Not without a file.

        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(
                f"{path} is not TOML: {error}",
                because="each line is a name, an equals sign and a value",
                hint='write it like policy = "balanced"',
            ) from None
        values: dict[str, Value] = {}
        for name, value in document.items():
            where = f" ({path}, line {_line_of(name, text)})"
            setting = setting_of(name, where=where)
            if setting.personal and path == self.project:
                raise UsageError(
                    f"{name} cannot be set for a project{where}",
                    because="it opens this machine to others, and a project folder "
                    "may come from somebody else",
                    hint=f"remove it there and run `shoal set {name} VALUE`",
                )
            values[name] = _of_kind(setting, value, where)
        return values

    def environment(self) -> dict[str, str]:
        """Return the project's settings as variables, for a background node."""
        return {
            SETTINGS[name].variable: as_variable(value)
            for name, value in self.read(self.project).items()
            if not os.environ.get(SETTINGS[name].variable)
        }


def current() -> UserSettings:
    """Return the settings for the running command; files are read once."""
    context = click.get_current_context(silent=True)
    if context is None:
        return UserSettings.usual()
    found: UserSettings = context.meta.setdefault(_META, UserSettings.usual())
    return found


@final
class FromSettings:
    """The callable that click asks for the default of an option."""

    def __init__(self, name: str, otherwise: Value | None) -> None:
        self.name = name
        self._otherwise = otherwise

    def __call__(self) -> Value | None:
        """Return the effective value; None if unset and without a default."""
        context = click.get_current_context(silent=True)
        try:
            value = current().find(self.name).value
        except ShoalError:
            if context is not None and context.resilient_parsing:
                return self._otherwise  # While a shell completes, nobody complains.
            raise
        return self._otherwise if value is None else value


def default_of(name: str, otherwise: Value | None = None) -> FromSettings:
    """Return the default of an option: the setting, else the given fallback."""
    assert name in SETTINGS, name
    return FromSettings(name, otherwise)


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the settings in {path}",
            because=getattr(error, "strerror", "") or str(error),
            hint="make it a readable text file, or move it away",
        ) from None


def _of_kind(setting: Setting, value: object, where: str) -> Value:
    match setting.kind:
        case "text" if isinstance(value, str):
            return value
        case "flag" if isinstance(value, bool):
            return value
        case "number" if isinstance(value, int) and not isinstance(value, bool):
            return value
        case "list" if isinstance(value, list):
            parts = cast("list[object]", value)
            texts = tuple(part for part in parts if isinstance(part, str))
            if len(texts) == len(parts):
                return texts
        case _:
            pass
    raise UsageError(
        f"{setting.name} is {value!r}{where}",
        because=f"it must be {KINDS[setting.kind]}",
        hint=f"it says {setting.about}",
    )


def _line_of(name: str, text: str) -> int:
    lines = text.splitlines()
    begins = (n for n, line in enumerate(lines, 1) if name in line.partition("=")[0])
    return next(begins, 1)


def as_variable(value: Value) -> str:
    """Return a value as text, for a variable or for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
