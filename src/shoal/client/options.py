"""What calls of functions need, and how their interpreters are to be."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypedDict, Unpack

import msgspec

from shoal.client.results import Results
from shoal.errors import UsageError
from shoal.model.bounds import NAME_LENGTH_MAX
from shoal.protocol.plain_values import RESULTS_VARIABLE

IDLE_S: Final = 30.0
RETRIES: Final = 3
RETRIES_MAX: Final = 1_000


class ClientOptions(TypedDict, total=False):
    """What calls need, as it is written; what is left out is as in the client.

    `lanes` is how many interpreters there may be at most (else as many as the shoal
    has room for), `idle_s` how long one without work is kept, `retries` how often a
    call is run again if its interpreter is lost. `cpu`, `gpu` and `ram` are what one
    interpreter needs, in the words of a job spec; `python` is its program, `env` its
    variables, and `network` whether functions may use the network. `results` says
    whose pickles are read: those of machines of the own owner ("auto"), all
    ("pickle"), or none ("plain"). All others send plain data.
    """

    lanes: int | None
    idle_s: float
    retries: int
    cpu: float | str | None
    gpu: int | str | None
    ram: int | str | None
    priority: int | None
    python: str | None
    env: Mapping[str, str] | None
    network: bool
    results: Results


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of calls. Calls with the same kind share their interpreters."""

    NAMES: ClassVar[frozenset[str]] = frozenset(
        {"cpu", "gpu", "ram", "priority", "retries", "results"}
    )
    """Options that `submit` takes beside the arguments of a function."""

    lanes: int | None = None
    idle_s: float = IDLE_S
    retries: int = RETRIES
    cpu: float | str | None = None
    gpu: int | str | None = None
    ram: int | str | None = None
    priority: int | None = None
    python: str = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    env: tuple[tuple[str, str], ...] = ()
    network: bool = False
    results: Results = "auto"

    @classmethod
    def made(cls, **options: Unpack[ClientOptions]) -> Options:
        """Return the defaults with these changes; raise `UsageError` if it is wrong."""
        return cls().changed(**options)

    def changed(self, **options: Unpack[ClientOptions]) -> Options:
        """Return the same with these changes; None changes nothing."""
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
        if not given:
            return self
        try:
            changed = msgspec.convert(
                {**msgspec.structs.asdict(self), **given}, Options
            )
        except msgspec.ValidationError as error:
            raise UsageError("an option is wrong", because=str(error)) from None
        _check(changed)
        return changed

    def kind(self) -> Options:
        """Return what decides in which interpreters a call may run."""
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
        if self.priority is not None:
            spec["priority"] = self.priority
        return json.dumps(spec)


_WANTS: Final[dict[Results, dict[str, str]]] = {
    "auto": {},
    "pickle": {},
    "plain": {RESULTS_VARIABLE: "plain"},
}
"""How an interpreter on a machine of the own owner hears what is not read here."""


def _check(options: Options) -> None:
    """Refuse now what the node would refuse later, when others wait."""
    from shoal.model.submission import load_spec  # noqa: PLC0415 - Slow.

    bounds = (
        ("lanes", options.lanes if options.lanes is not None else 1, 1, 1_024),
        ("retries", options.retries, 0, RETRIES_MAX),
        ("idle_s", options.idle_s, 0, 86_400),
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
