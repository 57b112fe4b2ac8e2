"""The canonical spec: one value per job, however the job was written.

`spec_of` takes a plain document: it refuses names that are not known and values of the
wrong type, and brings the rest to canonical form. A canonical command is a tuple of
words, amounts are in the form their `format_` functions write, lists without an order
are sorted, and a value that is the default is absent. Doing it twice changes nothing.
"""

from __future__ import annotations

import functools
import re
import shlex
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from shoal import validation
from shoal.errors import SpecError, UsageError, did_you_mean
from shoal.model.gpu import format_gpu, parse_gpu
from shoal.model.spec.documents import scalar_of, text_of
from shoal.model.spec.environments import (
    canonical_caches,
    canonical_lent,
    canonical_python,
    check_python,
)
from shoal.model.spec.globs import Glob
from shoal.model.spec.limits import ARGV_CHARS_MAX, ARGV_WORDS_MAX, NODES_MAX
from shoal.model.spec.points import format_array, parse_array, points, values_of
from shoal.model.spec.schedules import canonical_schedule
from shoal.model.spec.spec import (
    JobSpec,
    OnEndSpec,
    PlacementSpec,
    ResourcesSpec,
    RetrySpec,
    StepSpec,
    Sweep,
)
from shoal.model.spec.steps import step_job, step_order
from shoal.model.spec.sweeps import check_objective
from shoal.model.spec.verification import canonical_verify, check_verify
from shoal.model.text.bounds import NAME_LENGTH_MAX
from shoal.model.text.grammar import GrammarError, checker, is_name
from shoal.model.text.texts import cleaned
from shoal.model.units import (
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_least,
    parse_range,
    parse_size,
    parse_whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shoal.model.job import Scalar
    from shoal.model.spec.documents import Plain
    from shoal.model.text.grammar import Check
    from shoal.model.units import Amount

RESERVED: Final = ("index", "rank")
"""Names that every command may use, so no param can have them."""

_SHELL: Final = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RETRIED: Final = ("worker-lost", "failed")
"""What is tried again if a spec says how often, but not when."""

RETRIES_DEFAULT: Final = 3
SHOWN_MAX: Final = 80
"""Longest value that a complaint repeats, in characters."""

_EXIT: Final = re.compile(r"exit:([1-9][0-9]{0,2})")
_DEFAULTS: Final = ResourcesSpec(gpu="0", cpu="1", ram="0", disk="0")

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_Part = TypeVar("_Part", JobSpec, StepSpec)


def spec_of(document: Plain) -> JobSpec:
    """Return the canonical spec of a document made of plain values."""
    if not isinstance(document, dict):
        raise SpecError(
            "the spec is not a mapping",
            because="it is empty"
            if document is None
            else "it is a list"
            if isinstance(document, list)
            else "it is one value",
            hint="begin with `command: ...` or `recipe: ...`",
        )
    document = _flat(_with_long_names(document))
    try:
        spec = msgspec.convert(document, JobSpec)
    except msgspec.ValidationError as error:
        _refuse_unknown_names(document, inspect.type_info(JobSpec), "$")
        what, path = validation.told(error)
        where = _exact(path, document)
        raise SpecError(
            what,
            path=where,
            because=_shown(validation.value_at(document, where)),
            hint=validation.advice(JobSpec, where),
        ) from None
    if not _is_printable(document):
        _check_texts(spec)
    return canonical(spec)


def _is_printable(value: object) -> bool:
    """Whether all texts in a document are, as nearly always: then each may be there.

    To make what checks them by their grammar takes longer than all else in a spec.
    """
    if isinstance(value, str):
        return value.isprintable()
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        return all(map(_is_printable, pairs)) and all(
            map(_is_printable, pairs.values())
        )
    if isinstance(value, list | tuple):
        return all(map(_is_printable, cast("Sequence[object]", value)))
    return True


def _with_long_names(document: dict[str, Plain]) -> dict[str, Plain]:
    """Read `place` as `placement`."""
    if "place" not in document:
        return document
    if "placement" in document:
        raise SpecError(
            "both place and placement",
            path="$.place",
            because="they are two names of one thing",
            hint="keep placement",
        )
    names = {"place": "placement"}
    return {names.get(name, name): value for name, value in document.items()}


def _flat(part: dict[str, Plain]) -> dict[str, Plain]:
    """Return a job or step whose params are values: `a: {b: 1}` becomes `a.b: 1`."""
    flat = dict(part)
    if isinstance(steps := part.get("steps"), dict):
        flat["steps"] = {
            name: _flat(step) if isinstance(step, dict) else step
            for name, step in steps.items()
        }
    if isinstance(params := part.get("params"), dict):
        flat["params"] = _flat_params(params)
    return flat


def _flat_params(params: dict[str, Plain]) -> dict[str, Plain]:
    flat: dict[str, Plain] = {}
    for name, value in params.items():
        inside = value if isinstance(value, dict) else {"": value}
        for inner, each in inside.items():
            whole = f"{name}.{inner}" if inner else name
            if whole in flat:
                raise SpecError(
                    f"param '{whole}' is given twice",
                    path=f"$.params.{whole}",
                    because=f"`{name}: {{{inner}: ...}}` is another way to write it",
                    hint="keep one of them",
                )
            flat[whole] = each
    return flat


def _shown(value: object) -> str:
    """Say what a wrong value is, if that is short."""
    text = "" if value is None or isinstance(value, dict | list) else repr(value)
    return f"it is {text}" if 0 < len(text) <= SHOWN_MAX else ""


def _check_texts(spec: JobSpec) -> None:
    """Refuse texts that a message could not carry: its grammar is the same."""
    check = _texts()
    try:
        check(spec)
    except GrammarError as error:
        raise SpecError(
            "a character that no such text can have",
            path=cleaned(f"${error.path}"),
            because="zero bytes never pass, and names and paths have no control "
            "characters",
            hint="remove it, or put it into a file of the workdir",
        ) from None


@functools.cache
def _texts() -> Check:
    """Return what checks the texts of a spec, made when it is first needed."""
    check = checker(JobSpec)
    assert check is not None
    return check


def canonical(spec: JobSpec) -> JobSpec:
    """Check `spec` and bring it to canonical form."""
    steps = {
        _identifier(name, "$.steps"): _canonical_part(step, f"$.steps.{name}")
        for name, step in spec.steps.items()
    }
    spec = msgspec.structs.replace(_canonical_part(spec, "$"), steps=steps)
    if not spec.steps:
        _check(spec, "$")
        return spec
    _refuse_program_beside_steps(spec)
    step_order(spec)
    for name in spec.steps:
        _check(step_job(spec, name), f"$.steps.{name}")
    return spec


def nodes_of(spec: JobSpec) -> tuple[int, int]:
    """Return the least and the most nodes that run each point of `spec`."""
    least, most = parse_range(spec.nodes, parse_whole)
    assert most is not None
    return 1 if least is None else least, most


def at(path: str, parse: Callable[[_In], _Out], value: _In) -> _Out:
    """Return `parse(value)`; a complaint about it names `path`."""
    try:
        return parse(value)
    except UsageError as error:
        raise SpecError(
            error.what, path=path, because=error.because, hint=error.hint
        ) from None


# Names that are not known, and where a value of the wrong type stands.


def _refuse_unknown_names(value: Plain, shape: inspect.Type, path: str) -> None:
    match shape, value:
        case inspect.StructType(), dict():
            known = {field.encode_name: field.type for field in shape.fields}
            for name, item in value.items():
                if name not in known:
                    raise SpecError(
                        f"unknown field '{name}'",
                        path=f"{path}.{name}",
                        hint=_instead_of(name, known),
                    )
                _refuse_unknown_names(item, known[name], f"{path}.{name}")
        case inspect.DictType(), dict():
            for name, item in value.items():
                _refuse_unknown_names(item, shape.value_type, f"{path}.{name}")
        case inspect.VarTupleType(), list():
            for place, item in enumerate(value):
                _refuse_unknown_names(item, shape.item_type, f"{path}[{place}]")
        case inspect.UnionType(), _:
            for option in shape.types:
                _refuse_unknown_names(value, option, path)
        case inspect.Metadata(), _:
            _refuse_unknown_names(value, shape.type, path)
        case _:
            pass


def _instead_of(name: str, known: Mapping[str, object]) -> str:
    """Say which known field somebody means who writes an unknown one."""
    if name in AMOUNTS and "resources" in known:
        return "amounts are below resources, like resources: {cpu: 2, gpu: 1, ram: 8GB}"
    if (ours := ELSEWHERE.get(name, "")) in known:
        return f"it is called '{ours}' here"
    return did_you_mean(name, known) or f"known: {', '.join(known)}"


def _exact(path: str, document: Plain) -> str:
    """Put the name that is wrong where msgspec writes `[...]` for any of several."""
    before, elided, after = path.partition("[...]")
    if not elided:
        return path
    keys = before.removeprefix("$.").split(".")
    inside = document
    for key in keys:
        inside = inside[key] if isinstance(inside, dict) and key in inside else None
    for name, item in inside.items() if isinstance(inside, dict) else ():
        alone: Plain = {name: item}
        for key in reversed(keys):
            alone = {key: alone}
        try:
            msgspec.convert(alone, JobSpec)
        except msgspec.ValidationError:
            return _exact(f"{before}.{name}{after}", alone)
    return path


# The canonical form of each field.


def _canonical_part(part: _Part, path: str) -> _Part:
    forms: dict[str, object] = {}
    for field, form in _FORMS.items():
        value = getattr(part, field, None)
        if value is not None:
            forms[field] = form(value, f"{path}.{field}")
    return msgspec.structs.replace(part, **forms)


def _argv(command: str | tuple[Scalar, ...], path: str) -> tuple[str, ...]:
    if isinstance(command, str):
        words = at(path, _split, command)
    else:
        words = tuple(text_of(word) for word in command)
    size = sum(len(word) for word in words)
    if len(words) > ARGV_WORDS_MAX or size > ARGV_CHARS_MAX:
        raise SpecError(
            "the command is too long",
            path=path,
            because=f"{len(words)} words, {size} characters; the most is "
            f"{ARGV_WORDS_MAX} and {ARGV_CHARS_MAX}",
            hint="put it into a script in the workdir",
        )
    if any("\0" in word for word in words):
        raise SpecError("the command has a zero byte", path=path, hint="remove it")
    return words


def _split(command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(
            f"command '{command[:40]}' cannot be split into words",
            because=str(error).lower(),
            hint="close the quote, or write the command as a list",
        ) from None
    for word in words:
        if word in _SHELL:
            raise UsageError(
                f"command '{command[:40]}' needs a shell",
                because=f"commands run without one, and '{word}' means nothing then",
                hint="put it into a script, or write it as a list: [sh, -c, ...]",
            )
    return words


def _program(command: str | tuple[Scalar, ...], path: str) -> tuple[str, ...]:
    words = _argv(command, path)
    if not words or not words[0]:
        raise SpecError(
            "the command is empty", path=path, hint="write it like: python train.py"
        )
    return words


def _resources(need: ResourcesSpec, path: str) -> ResourcesSpec:
    written = _amounts(need, path)
    return ResourcesSpec(
        **{
            field: value if value != getattr(_DEFAULTS, field) else None
            for field, value in msgspec.structs.asdict(written).items()
        }
    )


def _any_of(needs: tuple[ResourcesSpec, ...], path: str) -> tuple[ResourcesSpec, ...]:
    return tuple(_amounts(need, f"{path}[{n}]") for n, need in enumerate(needs))


def _amounts(need: ResourcesSpec, path: str) -> ResourcesSpec:
    writers: dict[str, Callable[[Amount], str]] = {
        "gpu": lambda amount: format_gpu(parse_gpu(amount)),
        "cpu": lambda amount: format_cpu(parse_least(amount, parse_cpu)),
        "ram": lambda amount: format_size(parse_least(amount, parse_size)),
        "disk": lambda amount: format_size(parse_least(amount, parse_size)),
    }
    given = {field: getattr(need, field) for field in writers}
    return ResourcesSpec(
        **{
            field: at(f"{path}.{field}", writers[field], amount)
            for field, amount in given.items()
            if amount is not None
        }
    )


def _nodes(nodes: int | str, path: str) -> int | str:
    least, most = at(path, lambda text: parse_range(text, parse_whole), nodes)
    least = 1 if least is None else least
    if most is None or least < 1 or most > NODES_MAX:
        raise SpecError(
            f"'{nodes}' is not a number of nodes",
            path=path,
            because=f"it must lie between 1 and {NODES_MAX}, and a range needs a most",
            hint="write it like 4 or 2..4",
        )
    return least if least == most else f"{least}..{most}"


def _array(array: int | str, path: str) -> int | str:
    return format_array(at(path, parse_array, array))


def _sweep(sweep: Sweep, path: str) -> Sweep:
    if not sweep:
        raise SpecError(
            "the sweep is empty",
            path=path,
            because="it would be no task at all",
            hint="write it like {lr: [0.1, 0.2]}",
        )
    if isinstance(sweep, tuple):
        return tuple(_params(p, f"{path}[{n}]") for n, p in enumerate(sweep))
    _params(sweep, path)
    return {
        name: at(f"{path}.{name}", values_of, values) for name, values in sweep.items()
    }


def _params(params: Mapping[str, _Out], path: str) -> dict[str, _Out]:
    for name in params:
        _identifier(name, path)
        if name in RESERVED:
            raise SpecError(
                f"no param can be called '{name}'",
                path=f"{path}.{name}",
                because=f"{{{name}}} already stands for the place of a task",
                hint="choose another name",
            )
    return dict(params)


def _env(env: Mapping[str, Scalar], path: str) -> dict[str, str]:
    return {_variable(k, path): text_of(value) for k, value in env.items()}


def _secrets(names: Iterable[str], path: str) -> tuple[str, ...]:
    return tuple(sorted({_variable(name, path) for name in names}))


def _outputs(outputs: tuple[str, ...], path: str) -> tuple[str, ...]:
    for place, output in enumerate(outputs):
        try:
            Glob(output)
        except UsageError as error:
            raise SpecError(
                error.what,
                path=f"{path}[{place}]",
                because=error.because,
                hint=error.hint,
            ) from None
    return tuple(sorted(set(outputs)))


def _duration(text: str, path: str) -> str:
    return format_duration(at(path, parse_duration, text))


def _time_limit(text: str, path: str) -> str:
    limit = _duration(text, path)
    if limit == "0s":
        raise SpecError(
            "a time limit of 0 stops every task at once",
            path=path,
            hint="leave time_limit out for no limit",
        )
    return limit


def _retry(retry: RetrySpec, path: str) -> RetrySpec:
    if retry == RetrySpec():
        return retry
    given = map(str, RETRIED if retry.on is None else retry.on)
    reasons = [f"exit:{each}" if each.isdecimal() else each for each in given]
    for place, reason in enumerate(reasons):
        code = _EXIT.fullmatch(reason)
        if reason not in RETRIED and not (code and int(code.group(1)) <= 255):
            raise SpecError(
                f"'{reason}' is no reason to retry",
                path=f"{path}.on[{place}]",
                because="the reasons are worker-lost, failed, and exit:1 to exit:255",
                hint=did_you_mean(reason, (*RETRIED, "exit:1")),
            )
    most = RETRIES_DEFAULT if retry.max is None else retry.max
    return RetrySpec(max=most, on=tuple(sorted(set(reasons))))


def _placement(placement: PlacementSpec, path: str) -> PlacementSpec:
    rtt, leaf = placement.max_rtt, placement.same_leaf
    labels = {name: text_of(value) for name, value in placement.labels.items()}
    for name, value in labels.items():
        if not is_name(value) or len(value) > NAME_LENGTH_MAX:
            raise SpecError(
                "no node can have such a label",
                path=f"{path}.labels.{name}",
                because=f"a label has at most {NAME_LENGTH_MAX} characters, none of "
                "which steers a terminal",
                hint="write it like zone: west",
            )
    if isinstance(leaf, bool):
        leaf = "require" if leaf else "no"
    return msgspec.structs.replace(
        placement,
        node=_node_names(placement.node, f"{path}.node"),
        labels={name: labels[name] for name in sorted(labels)},
        max_rtt=None if rtt is None else _duration(rtt, f"{path}.max_rtt"),
        same_leaf=leaf,
    )


def _on_end(on_end: OnEndSpec, path: str) -> OnEndSpec | None:
    command = _argv(on_end.command, f"{path}.command") if on_end.command else ()
    if on_end.webhook and not on_end.webhook.startswith(("https://", "http://")):
        raise SpecError(
            "that is no webhook",
            path=f"{path}.webhook",
            because="it is the URL of a web server",
            hint="write it like https://example.org/hooks/shoal",
        )
    if not on_end.webhook and not command:
        return None
    return OnEndSpec(webhook=on_end.webhook, command=command)


def _node_names(node: str | tuple[str, ...], path: str) -> tuple[str, ...]:
    names = (node,) if isinstance(node, str) else node
    if len(names) > NODES_MAX:
        raise SpecError(
            f"{len(names)} nodes are too many to name",
            path=path,
            because=f"the most is {NODES_MAX}",
            hint="give these nodes a label, and ask for that: `placement.labels`",
        )
    return tuple(sorted(set(names)))


def _name(name: str, path: str) -> str:
    if not name.isprintable():
        raise SpecError(
            "the name has characters that cannot be shown",
            path=path,
            hint="remove them",
        )
    return name.strip()


def _identifier(name: str, path: str) -> str:
    if _IDENTIFIER.fullmatch(name) is None:
        raise SpecError(
            f"'{name}' is not a name",
            path=path,
            because="a name begins with a letter and has letters, digits and . _ -",
            hint="write it like lr or batch_size",
        )
    return name


def _variable(name: str, path: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise SpecError(
            f"'{name}' is not the name of a variable",
            path=path,
            because="it has letters, digits and _, and does not begin with a digit",
            hint="write it like HF_TOKEN",
        )
    return name


def _needs(needs: tuple[str, ...], _path: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(needs))  # Their order says whose files win.


_FORMS: Final[dict[str, Callable[[Any, str], object]]] = {
    "name": _name,
    "needs": _needs,
    "command": _program,
    "recipe": _identifier,
    "params": _params,
    "resources": _resources,
    "any_of": _any_of,
    "nodes": _nodes,
    "array": _array,
    "sweep": _sweep,
    "setup": _argv,
    "env": _env,
    "secrets": _secrets,
    "outputs": _outputs,
    "retry": _retry,
    "time_limit": _time_limit,
    "grace": _duration,
    "placement": _placement,
    "on_end": _on_end,
    "driver": _identifier,
    "python": canonical_python,
    "mounts": canonical_lent,
    "cache": canonical_caches,
    "verify": canonical_verify,
    "schedule": canonical_schedule,
}
ELSEWHERE: Final = {
    "container": "image",
    "cron": "schedule",
    "cwd": "workdir",
    "environment": "env",
    "grid": "sweep",
    "matrix": "sweep",
    "requirements": "python",
    "retries": "retry",
    "shares": "mounts",
    "timeout": "time_limit",
    "volumes": "mounts",
    "walltime": "time_limit",
}
"""Words of other tools, and ours."""

AMOUNTS: Final = frozenset(
    {"cpu", "cpus", "gpu", "gpus", "ram", "mem", "memory", "disk"}
)
"""What people write beside `resources`, as other schedulers have it."""


# What the fields mean together.


def _check(spec: JobSpec, path: str) -> None:
    if (spec.command is None) == (spec.recipe is None):
        given = "both" if spec.command is not None else "neither"
        raise SpecError(
            f"{given} of command and recipe",
            path=path,
            because="a job is exactly one of the two, or has steps",
            hint="write it like `command: python train.py`",
        )
    if spec.array is not None and spec.sweep is not None:
        raise SpecError(
            "both array and sweep",
            path=path,
            because="each says how many tasks there are",
            hint="sweep over one more param instead of the array",
        )
    if spec.at_most_once and spec.speculate:
        raise SpecError(
            "both at_most_once and speculate",
            path=path,
            because="to speculate is to start a task twice",
            hint="remove one of them",
        )
    if spec.keepers and (spec.verify is not None or spec.schedule is not None):
        other = "schedule" if spec.verify is None else "verify"
        raise SpecError(
            f"both keepers and {other}",
            path=f"{path}.keepers",
            because="what it stands for is known to one node alone",
            hint="remove one of them",
        )
    if spec.driver == "container" and not spec.image:
        raise SpecError(
            "driver container without an image",
            path=f"{path}.driver",
            because="a container is made from one",
            hint="write it like `image: python:3.12-slim`",
        )
    for name in spec.secrets:
        if name in spec.env:
            raise SpecError(
                f"variable '{name}' is in env and in secrets",
                path=f"{path}.env.{name}",
                because="only one of the two could count",
                hint="remove it from env",
            )
    check_python(spec, path)
    check_verify(spec, path, nodes_of(spec)[1])
    check_objective(spec, path, nodes_of(spec)[1])
    _check_stdin(spec, path)
    _check_params(spec, path)


def why_no_stdin(spec: JobSpec) -> str:
    """Return why a job cannot have a standard input; empty if it can."""
    is_many = spec.array is not None or spec.sweep is not None
    if is_many or spec.steps or spec.nodes != 1:
        return "the job has several tasks, and input goes to one"
    if spec.recipe is not None:
        return "recipes read none"
    if spec.image:
        return "containers are given none"
    if spec.schedule is not None:
        return "its runs begin later"
    if spec.verify is not None or spec.speculate:
        return "its task may run more than once, and input is read once"
    return ""


def _check_stdin(spec: JobSpec, path: str) -> None:
    if spec.stdin != "none" and (why := why_no_stdin(spec)):
        raise SpecError(
            "this job cannot have a standard input",
            path=f"{path}.stdin",
            because=why,
            hint="put the data into a file of the workdir",
        )


def _check_params(spec: JobSpec, path: str) -> None:
    own = at(f"{path}.sweep", points, spec)
    for point in own[:1] if spec.array is not None else own:
        for name in point:
            if name in spec.params:
                raise SpecError(
                    f"param '{name}' is in params and in sweep",
                    path=f"{path}.params.{name}",
                    because="only one of the two could count",
                    hint="remove it from params",
                )
    for name, text in spec.params_text.items():
        value = scalar_of(text)
        if (
            name not in spec.params
            or value != spec.params[name]
            or text == text_of(value)
        ):
            raise SpecError(
                f"param '{name}' was not typed as '{text}'",
                path=f"{path}.params_text.{name}",
                because=f"its value is {spec.params.get(name, 'absent')}",
                hint="remove params_text: it is only for flags",
            )


def _refuse_program_beside_steps(spec: JobSpec) -> None:
    for field in ("command", "recipe", "array", "sweep", "nodes", "stdin"):
        if getattr(spec, field) != getattr(_EMPTY, field):
            raise SpecError(
                f"'{field}' stands beside steps",
                path=f"$.{field}",
                because="with steps, each step says what runs and how often",
                hint=f"move '{field}' into a step",
            )


_EMPTY: Final = JobSpec()
