"""Options of function calls and of the interpreters that run them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypedDict, Unpack, cast

import msgspec

from shoal import validation
from shoal.client.results import Results
from shoal.errors import UsageError
from shoal.model.text.bounds import NAME_LENGTH_MAX
from shoal.protocol.plain_values import RESULTS_VARIABLE

IDLE_S: Final = 30.0
NEVER_S: Final = 15.0
RETRIES: Final = 3
RETRIES_MAX: Final = 1_000


class ClientOptions(TypedDict, total=False):
    """Options as users write them; missing ones keep the client's value.

    `lanes` is the maximum number of interpreters (default: as many as the shoal has
    room for), `idle_s` how long an idle interpreter is kept, `never_s` after how long
    calls fail that no known node could run even when idle, and `retries` how often a
    call is rerun if its interpreter is lost. `cpu`, `gpu` and `ram` are the needs of
    one interpreter, written as in a job spec; `python` is its program, or its
    environment as in a job spec: a requirements file, a mapping, or a list of packages.
    `env` are its environment variables, and `network` says whether functions may use
    the network.
    `results` selects the machines whose pickles are read: those of the caller's owner
    ("auto"), all ("pickle"), or none ("plain"). Other machines send plain data.
    """

    lanes: int | None
    idle_s: float
    never_s: float
    retries: int
    cpu: float | str | None
    gpu: int | str | None
    ram: int | str | None
    priority: int | None
    python: str | Mapping[str, Any] | Sequence[str] | None
    env: Mapping[str, str] | None
    network: bool
    results: Results


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Validated options of a call. Calls of the same `kind` share interpreters."""

    NAMES: ClassVar[frozenset[str]] = frozenset(
        {"cpu", "gpu", "ram", "priority", "retries", "results"}
    )
    """Options that `submit` accepts among the function's keyword arguments."""

    lanes: int | None = None
    idle_s: float = IDLE_S
    never_s: float = NEVER_S
    retries: int = RETRIES
    cpu: float | str | None = None
    gpu: int | str | None = None
    ram: int | str | None = None
    priority: int | None = None
    python: str = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    environment: str = ""  # of Python, as JSON; `python` is a program of it then
    env: tuple[tuple[str, str], ...] = ()
    network: bool = False
    results: Results = "auto"

    @classmethod
    def made(cls, **options: Unpack[ClientOptions]) -> CallOptions:
        """Return the defaults with changes; raise `UsageError` if one is invalid."""
        return cls().changed(**options)

    def changed(self, **options: Unpack[ClientOptions]) -> CallOptions:
        """Return a copy with changes; None leaves an option unchanged."""
        fields = set(self.__struct_fields__)
        given: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        if unknown := sorted(given.keys() - fields):
            raise UsageError(
                f"there is no option '{unknown[0]}'",
                because=f"the options are {', '.join(sorted(fields))}",
                hint="arguments of a function go to submit",
            )
        if "env" in given and not isinstance(given["env"], tuple):
            given["env"] = tuple(sorted(dict(given["env"]).items()))
        if "python" in given:
            given.update(_python(given["python"]))
        if not given:
            return self
        try:
            changed = msgspec.convert(
                {**msgspec.structs.asdict(self), **given}, CallOptions
            )
        except msgspec.ValidationError as error:
            raise UsageError(
                "an option is wrong", because=validation.sentence(error)
            ) from None
        _check(changed)
        return changed

    def kind(self) -> CallOptions:
        """Return the options that decide which interpreters can run a call."""
        return msgspec.structs.replace(self, retries=RETRIES)

    def spec(self) -> str:
        """Return the job spec of one interpreter."""
        needs = {"cpu": self.cpu, "gpu": self.gpu, "ram": self.ram}
        spec: dict[str, Any] = {
            "name": "calls",
            "command": [self.python],
            "resources": {k: v for k, v in needs.items() if v is not None},
            "env": {**dict(self.env), **_WANTS[self.results]},
            "network": self.network,
        }
        if self.environment:
            spec["python"] = json.loads(self.environment)
        if self.priority is not None:
            spec["priority"] = self.priority
        return json.dumps(spec)


def _python(given: object) -> dict[str, str]:
    """Return the program and the environment that `python` stands for.

    An environment that is made has the Python of this program unless it says otherwise:
    functions are pickled, and only the same version reads that for sure.
    """
    from shoal.model.spec.environments import from_words  # noqa: PLC0415 - Slow.

    if isinstance(given, str) and _PROGRAM.fullmatch(given):
        return {"python": given, "environment": ""}
    if isinstance(given, str):
        wanted: dict[str, Any] = msgspec.to_builtins(from_words((given,)))
    elif isinstance(given, Mapping):
        wanted = dict(cast("Mapping[str, Any]", given))
    else:
        wanted = {"packages": list(cast("Sequence[str]", given))}
    if not wanted.get("name") and not wanted.get("version"):
        wanted["version"] = "{}.{}".format(*sys.version_info)
    return {"python": "python", "environment": json.dumps(wanted, sort_keys=True)}


_PROGRAM: Final = re.compile(r"|python[0-9.]*|/.*")
_WANTS: Final[dict[Results, dict[str, str]]] = {
    "auto": {},
    "pickle": {},
    "plain": {RESULTS_VARIABLE: "plain"},
}
"""Variables that tell an interpreter of the same owner to send no pickles."""


def _check(options: CallOptions) -> None:
    """Raise `UsageError` now for options that the node would refuse later."""
    from shoal.model.spec.submission import load_spec  # noqa: PLC0415 - Slow.

    bounds = (
        ("lanes", options.lanes if options.lanes is not None else 1, 1, 1_024),
        ("retries", options.retries, 0, RETRIES_MAX),
        ("idle_s", options.idle_s, 0, 86_400),
        ("never_s", options.never_s, 0.1, 86_400),
    )
    for name, value, least, most in bounds:
        if not least <= value <= most:
            raise UsageError(
                f"{name} = {value}",
                because=f"it is between {least} and {most}",
                hint=f"write it like {name}={least}",
            )
    if not options.python or len(options.python) > NAME_LENGTH_MAX:
        raise UsageError("python names no program", hint="such as python3.11")
    load_spec(options.spec(), "json")
