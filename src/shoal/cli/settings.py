"""What a user has set: in the environment, for a project, or for good.

A flag wins over a variable `SHOAL_NAME`, that over `shoal.toml` in the working folder,
that over the user's own file, and that over what shoal does by itself. Every command
imports this, so nothing slow is imported before a file is there to read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast, final

import click

from shoal.errors import ShoalError, UsageError

Kind = Literal["text", "flag", "number", "list"]
Value = str | bool | int | tuple[str, ...]

KINDS: Final[dict[Kind, str]] = {
    "text": "a text in quotes",
    "flag": "true or false",
    "number": "a whole number",
    "list": "a list of texts",
}
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})
PROJECT_FILE: Final = "shoal.toml"
_META: Final = "shoal.settings"


@final
class Setting(NamedTuple):
    """Something that can be set.

    What opens this machine to others is `personal`: a folder that came from somebody
    else must not decide about it.
    """

    name: str
    kind: Kind
    about: str
    default: Value | None = None
    personal: bool = False

    @property
    def variable(self) -> str:
        """The variable of the environment that sets it."""
        return f"SHOAL_{self.name.upper()}"


_ALL: Final = (
    Setting("allow", "text", "what may run here: command, image, recipe", None, True),
    Setting("api", "text", "HOST:PORT for clients on other machines", None, True),
    Setting("cache", "text", "the most that code and data may take, such as 20GB"),
    Setting("color", "flag", "whether there are colours in a terminal", default=True),
    Setting("containers", "flag", "whether others may run images here", True, True),
    Setting("functions", "flag", "whether others may run functions here", True, True),
    Setting("labels", "list", "what jobs may ask of this node, such as leaf=rack7"),
    Setting("listen", "text", "HOST:PORT where other nodes reach this one", None, True),
    Setting("metrics", "text", "HOST:PORT of a page for Prometheus", None, True),
    Setting("net", "text", "which of several shoals here commands are about"),
    Setting("node", "text", "the node that commands ask, by HOST:PORT or name"),
    Setting("policy", "text", "how workers are ranked"),
    Setting("port", "number", "where clients reach this node; 50051 if it is free"),
    Setting("sandbox", "flag", "whether tasks are confined", True, True),
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
        "what tasks of others may reach: none, internet, all",
        "none",
        True,
    ),
    Setting("web", "text", "HOST:PORT of the page for browsers, or off", None, True),
)
SETTINGS: Final = {setting.name: setting for setting in _ALL}


class Found(NamedTuple):
    """A value, and where it comes from: a variable, a file, or "default"."""

    value: Value | None
    origin: str


def setting_of(name: str, *, where: str = "") -> Setting:
    """Return the setting of this name, or say which one may be meant."""
    if name in SETTINGS:
        return SETTINGS[name]
    from difflib import get_close_matches  # noqa: PLC0415 - Only after a mistake.

    near = get_close_matches(name, SETTINGS, n=1)
    raise UsageError(
        f"there is no setting '{name}'{where}",
        because=f"the settings are {', '.join(SETTINGS)}",
        hint=f"did you mean '{near[0]}'?" if near else "`shoal set` lists them all",
    )


def parsed(setting: Setting, text: str, *, of: str) -> Value:
    """Return the value that a word of a command line, or a variable, stands for."""
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
class Settings:
    """All that is set outside the command line. Files are read when first asked."""

    def __init__(self, project: Path, own: Path) -> None:
        self.project = project
        self.own = own
        self._read: dict[Path, dict[str, Value]] = {}

    @classmethod
    def usual(cls) -> Settings:
        """Return those of this process: its working folder, its user."""
        base = os.environ.get("XDG_CONFIG_HOME")
        config = Path(base) if base else Path("~/.config").expanduser()
        return cls(Path(PROJECT_FILE), config / "shoal" / "config.toml")

    def find(self, name: str) -> Found:
        """Return what counts for a setting, and why."""
        setting = SETTINGS[name]
        text = os.environ.get(setting.variable)
        if text:
            value = parsed(setting, text, of=f"the variable {setting.variable}")
            return Found(value, setting.variable)
        for path in (self.project, self.own):
            if name in (values := self.read(path)):
                return Found(values[name], str(path))
        return Found(setting.default, "default")

    def read(self, path: Path) -> dict[str, Value]:
        """Return what a file sets; nothing if it is not there."""
        if path not in self._read:
            text = _text_of(path)
            self._read[path] = {} if text is None else self.checked(path, text)
        return self._read[path]

    def checked(self, path: Path, text: str) -> dict[str, Value]:
        """Return what the text of a file sets, or say in which line it is wrong."""
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
                    because="it opens this machine to others, which a folder that "
                    "came from somebody else must not decide",
                    hint=f"remove it there, and `shoal set {name} VALUE`",
                )
            values[name] = _of_kind(setting, value, where)
        return values

    def environment(self) -> dict[str, str]:
        """Return the project's settings as variables, for a node that leaves it."""
        return {
            SETTINGS[name].variable: _as_variable(value)
            for name, value in self.read(self.project).items()
            if not os.environ.get(SETTINGS[name].variable)
        }


def current() -> Settings:
    """Return the settings of the command that runs; files are read once for it."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Settings.usual()
    found: Settings = context.meta.setdefault(_META, Settings.usual())
    return found


@final
class FromSettings:
    """What click calls for the value of an option that was not given."""

    def __init__(self, name: str, otherwise: Value | None) -> None:
        self.name = name
        self._otherwise = otherwise

    def __call__(self) -> Value | None:
        """Return what counts now; None if nothing is set and there is no default."""
        context = click.get_current_context(silent=True)
        try:
            value = current().find(self.name).value
        except ShoalError:
            if context is not None and context.resilient_parsing:
                return self._otherwise  # While a shell completes, nobody complains.
            raise
        return self._otherwise if value is None else value


def default_of(name: str, otherwise: Value | None = None) -> FromSettings:
    """Return the default of an option: what is set, else what is given here."""
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
            hint="make it a text file that you can read, or move it away",
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


def _as_variable(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
