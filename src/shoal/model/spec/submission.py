"""All ways to submit a job; each yields the same canonical spec.

YAML and JSON hold a spec as `spec.py` describes it. JSON may also be a task of the
first training scheduler, with `required_gpus` and `min_gpu_memory` in MB, and params
that are all text. Such a task names no program, since that scheduler only played at
running one; here it is the recipe `train`, a built-in program that gets all params. By
flags, a job without a command is the same. Where that scheduler had defaults they hold
for these jobs, and for no others: one GPU with 4096 MB.

Params that come as text become numbers where they are written as numbers; the command
gets the text as it was typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, assert_never

import msgspec

from shoal import validation
from shoal.errors import SpecError
from shoal.model.gpu import parse_gpu
from shoal.model.spec.canonical import at, spec_of
from shoal.model.spec.documents import read_json, read_yaml, scalar_of, text_of
from shoal.model.spec.environments import from_words
from shoal.model.units import Amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.model.job import Scalar
    from shoal.model.spec.documents import Plain
    from shoal.model.spec.spec import JobSpec

Format = Literal["yaml", "json"]

TRAIN: Final = "train"
"""The recipe of a job that names no program."""

TASK_GPUS: Final = 1
TASK_GPU_MEMORY_MB: Final = 4_096

_TASK_FIELDS: Final = ("required_gpus", "min_gpu_memory")
_TASK_SHAPE: Final = frozenset({"name", "params", *_TASK_FIELDS})


class Flags(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said on a command line. None and an empty list are "not given"."""

    name: str | None = None
    command: tuple[str, ...] = ()
    recipe: str | None = None
    params: tuple[str, ...] = ()  # name=value
    gpus: Amount | None = None
    memory: Amount | None = None  # of each GPU, in MB
    gpu_mem: Amount | None = None
    cpu: Amount | None = None
    ram: Amount | None = None
    disk: Amount | None = None
    nodes: str | int | None = None
    array: str | int | None = None
    workdir: str | None = None
    setup: str | None = None
    env: tuple[str, ...] = ()  # NAME=value
    secrets: tuple[str, ...] = ()
    python: tuple[str, ...] = ()  # a file, a version or a name, each by its form
    packages: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()
    image: str | None = None
    outputs: tuple[str, ...] = ()
    priority: int | None = None
    preempt: bool | None = None
    preemptible: bool | None = None
    retries: int | None = None
    retry_on: tuple[str, ...] = ()
    time_limit: str | None = None
    schedule: str | None = None
    grace: str | None = None
    policy: str | None = None
    labels: tuple[str, ...] = ()  # name=value
    max_rtt: str | None = None
    distinct_nodes: bool | None = None
    on: tuple[str, ...] = ()  # names of nodes
    network: bool | None = None
    driver: str | None = None
    at_most_once: bool | None = None
    speculate: bool | None = None
    keepers: int | None = None


_AS_IN_SPEC: Final = (
    "name",
    "recipe",
    "nodes",
    "array",
    "workdir",
    "setup",
    "image",
    "priority",
    "preempt",
    "preemptible",
    "time_limit",
    "schedule",
    "grace",
    "network",
    "driver",
    "at_most_once",
    "speculate",
    "keepers",
)
_FLAG_OF: Final = {
    "$.resources.gpu": "--gpus",
    "$.resources.cpu": "--cpu",
    "$.resources.ram": "--ram",
    "$.resources.disk": "--disk",
    "$.retry.max": "--retries",
    "$.retry.on": "--retry-on",
    "$.placement.max_rtt": "--max-rtt",
    "$.placement.distinct_nodes": "--distinct-nodes",
    "$.placement.policy": "--policy",
    "$.placement.labels": "--label",
    "$.placement.node": "--on",
    "$.params": "--param",
    "$.outputs": "--output",
    "$.secrets": "--secret",
    "$.python.packages": "--package",
    "$.mounts": "--mount",
    "$.command": "--",
}


def load_spec(text: str | bytes, format_: Format) -> JobSpec:
    """Return the canonical spec of a YAML or JSON text; JSON may be an old task."""
    match format_:
        case "yaml":
            return spec_of(read_yaml(text))
        case "json":
            return spec_from_task(read_json(text))
        case _:
            assert_never(format_)


def spec_from_task(document: Plain) -> JobSpec:
    """Return the spec of a document that may be a task of the first scheduler.

    It is one if it has `required_gpus` or `min_gpu_memory`, or nothing but a name and
    params. Such a task may have a command or recipe, and any other field of a spec.
    """
    if not isinstance(document, dict):
        return spec_of(document)
    old = any(field in document for field in _TASK_FIELDS)
    if not old and not (document and document.keys() <= _TASK_SHAPE):
        return spec_of(document)
    rest = {name: v for name, v in document.items() if name not in _TASK_FIELDS}
    if isinstance(params := rest.get("params"), dict):
        values, texts = _typed({k: v for k, v in params.items() if isinstance(v, str)})
        rest["params"] = {**params, **values}
        rest["params_text"] = {**texts}
    if not {"command", "recipe", "steps"} & rest.keys():
        rest["recipe"] = TRAIN
    resources = rest.setdefault("resources", {})
    if isinstance(resources, dict):
        _refuse_two_needs(resources)
        rest["resources"] = {**resources, "gpu": _task_gpu(document)}
    return spec_of(rest)


def spec_from_flags(
    flags: Mapping[str, object], base: JobSpec | None = None
) -> JobSpec:
    """Return the spec that flags describe, or `base` with their changes.

    Params, variables and labels add to `base`'s, and everything else that is
    given replaces what is there. A complaint names the flag in place of a path.
    """
    try:
        given = msgspec.convert(flags, Flags)
        return spec_of(_document(given, base))
    except msgspec.ValidationError as error:
        what, path = validation.told(error)
        hint = validation.advice(Flags, path)
        raise SpecError(what, path=_flag(path), hint=hint) from None
    except SpecError as error:
        what = error.what.removesuffix(f" - at `{error.path}`")
        raise SpecError(
            what, path=_flag(error.path), because=error.because, hint=error.hint
        ) from None


def _document(flags: Flags, base: JobSpec | None) -> dict[str, Any]:
    document: dict[str, Any] = {} if base is None else msgspec.to_builtins(base)
    for field in _AS_IN_SPEC:
        if (value := getattr(flags, field)) is not None:
            document[field] = value
    for field in ("command", "secrets", "outputs", "mounts", "cache"):
        if value := getattr(flags, field):
            document[field] = list(value)
    if flags.python or flags.packages:
        python = msgspec.to_builtins(from_words(flags.python, "--python"))
        packages = {"packages": list(flags.packages)} if flags.packages else {}
        document["python"] = {**python, **packages}
    if flags.command or flags.recipe:
        document.pop("recipe" if flags.command else "command", None)
    is_task = not {"command", "recipe", "steps"} & document.keys()
    if is_task:
        document["recipe"] = TRAIN
    _merge(document, "env", _pairs(flags.env, "--env"))
    _merge_params(document, _pairs(flags.params, "--param"))
    _merge(document, "resources", _resources(flags, is_task=is_task))
    retry: dict[str, Any] = {}
    if flags.retries is not None:
        retry["max"] = flags.retries
    if flags.retry_on:
        retry["on"] = list(flags.retry_on)
    _merge(document, "retry", retry)
    placement: dict[str, Any] = dict(document.get("placement", {}))
    _merge(placement, "labels", _pairs(flags.labels, "--label"))
    near = {
        "policy": flags.policy,
        "max_rtt": flags.max_rtt,
        "distinct_nodes": flags.distinct_nodes,
        "node": list(flags.on) or None,
    }
    placement.update((name, value) for name, value in near.items() if value is not None)
    _merge(document, "placement", placement)
    return document


def _merge(document: dict[str, Any], field: str, more: Mapping[str, object]) -> None:
    if more:
        document[field] = {**document.get(field, {}), **more}


def _merge_params(document: dict[str, Any], pairs: dict[str, str]) -> None:
    """Let new params replace old ones, and what was typed for those."""
    texts: dict[str, str] = document.pop("params_text", {})
    document["params_text"] = {k: v for k, v in texts.items() if k not in pairs}
    values, differing = _typed(pairs)
    _merge(document, "params", values)
    _merge(document, "params_text", differing)


def _typed(texts: Mapping[str, str]) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Return the values of params, and the texts that those would not print as."""
    values = {name: scalar_of(text) for name, text in texts.items()}
    differing = {k: text for k, text in texts.items() if text != text_of(values[k])}
    return values, differing


def _resources(flags: Flags, *, is_task: bool) -> dict[str, Amount]:
    gpu = _gpu(flags)
    if is_task:
        gpu = _with_defaults(str(TASK_GPUS) if gpu is None else gpu)
    amounts = {"gpu": gpu, "cpu": flags.cpu, "ram": flags.ram, "disk": flags.disk}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _with_defaults(gpu: str) -> str:
    need = at("--gpus", parse_gpu, gpu)
    if need is None or need.memory_min_bytes or need.memory_max_bytes is not None:
        return gpu
    return f"{gpu}:{TASK_GPU_MEMORY_MB}MB"


def _gpu(flags: Flags) -> str | None:
    """Put the flags about GPUs into one word of the GPU grammar."""
    if flags.memory is not None and flags.gpu_mem is not None:
        raise SpecError(
            "both --memory and --gpu-mem",
            path="--memory",
            because="each says how much memory a GPU must have",
            hint="keep --gpu-mem",
        )
    memory = flags.gpu_mem if flags.memory is None else _memory_mb(flags.memory)
    if memory is None:
        return None if flags.gpus is None else str(flags.gpus)
    return f"{1 if flags.gpus is None else flags.gpus}:{memory}"


def _memory_mb(memory: Amount) -> str:
    text = str(memory).strip()
    if not (text.isascii() and text.isdigit()):
        raise SpecError(
            f"--memory {text} could mean two things",
            path="--memory",
            because="--memory is a bare number: the MB that each GPU must have",
            hint=f"--gpu-mem {text} for GPU memory, --ram {text} for main memory",
        )
    return f"{text}MB"


def _pairs(words: Iterable[str], flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or name in pairs:
            raise SpecError(
                f"'{word}' is not a name and its value",
                path=flag,
                because=f"'{name}' is given twice"
                if name in pairs
                else f"it has no {'name before the ' if equals else ''}'='",
                hint=f"write it like {flag} NAME=VALUE",
            )
        pairs[name] = value
    return pairs


def _task_gpu(document: Mapping[str, Plain]) -> str:
    count = document.get("required_gpus", TASK_GPUS)
    memory = document.get("min_gpu_memory", TASK_GPU_MEMORY_MB)
    for field, value in zip(_TASK_FIELDS, (count, memory), strict=True):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SpecError(
                "expected a whole number, at least 0",
                path=f"$.{field}",
                because=f"it is {value}",
                hint="write a whole number; memory is in MB",
            )
    return f"{count}:{memory}MB" if count and memory else str(count)


def _refuse_two_needs(resources: Mapping[str, Plain]) -> None:
    if "gpu" in resources:
        raise SpecError(
            "both required_gpus and resources.gpu",
            path="$.resources.gpu",
            because="each says which GPUs the job needs",
            hint="keep resources.gpu",
        )


def _flag(path: str) -> str:
    if not path.startswith("$."):
        return path or "$"
    for prefix, flag in _FLAG_OF.items():
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
            return flag
    field = path.removeprefix("$.").partition(".")[0].partition("[")[0]
    return "--" + field.replace("_", "-") if field in Flags.__struct_fields__ else path
