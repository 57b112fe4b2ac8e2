"""What `--json` prints: every field of every command, with its kind and its meaning.

A kind is text, int, float, bool or the name of an object; `list of X`, `map of X` and
`X or null` are made of these. A name that ends with `?` may be left out. Fields may be
added within a version; for anything else `printing.VERSION` rises.
"""

from __future__ import annotations

from typing import Any, Final, cast

from shoal.cli.reference.answers_sim import SIM_ANSWERS, SIM_OBJECTS

Shape = dict[str, tuple[str, str]]

NODE_NAME: Final[Shape] = {
    "id": ("text", "the id of a node"),
    "petname": ("text", "its name for people"),
}

OBJECTS: Final[dict[str, Shape]] = {
    "name": NODE_NAME,
    "job": {
        "id": ("text", "unique in the shoal"),
        "number": ("int", "counts the jobs of this node, from 1; 0 is none"),
        "name": ("text", "what its author calls it"),
        "owner": ("text", "the node that submitted it"),
        "state": (
            "text",
            "blocked, waiting, running, done, failed, cancelled, unknown",
        ),
        "reason": ("text", "why it is in this state; may be empty"),
        "priority": ("int", "from -100 to 100"),
        "submitted_s": ("float", "when, in seconds since 1970"),
        "began_s": ("float or null", "when its first task was given to a worker"),
        "ended_s": ("float or null", "when its last task ended"),
        "tasks": ("map of int", "how many tasks are in each state"),
        "nodes": ("list of name", "where it runs; if it has ended, where it ran"),
        "exit_code": ("int or null", "of the first task that failed, or 0"),
        "fraction": ("float or null", "how far it is, from 0 to 1"),
        "at?": ("name", "the node that has it, with --everywhere"),
    },
    "silent": {**NODE_NAME, "reason": ("text", "why it did not tell its jobs")},
    "task": {
        "id": ("text", "the job's id, a dot, and its place"),
        "state": ("text", "as of a job"),
        "reason": ("text", "why it is in this state; may be empty"),
        "attempts": ("int", "how often it was started"),
        "exit_code": ("int or null", "of its last attempt"),
        "nodes": ("list of name", "where it runs, or ran"),
        "argv": ("list of text", "what is run"),
        "recipe": ("text", "the program of shoal that is run instead; may be empty"),
        "needs": ("text", "what it asks for, in words"),
        "fraction": ("float or null", "how far it is, from 0 to 1"),
        "metrics": ("map of float", "the latest figures that it reported"),
        "began_s": ("float or null", "when it was first given to a worker"),
        "ended_s": ("float or null", "when it ended"),
        "answers": ("list of answer", "who gave a result, if it is verified"),
    },
    "answer": {
        **NODE_NAME,
        "said": ("text", "agreed, disagreed, believed, failed, or what it gave"),
    },
    "standing": {
        "trust": ("text", "trusted, unknown or shunned, by all results of its owner"),
        "judged": ("int", "how many of its results were compared"),
        "disagreed": ("int", "how many of them were wrong"),
    },
    "amounts": {
        "cpu_milli": ("int", "thousandths of a CPU"),
        "memory_bytes": ("int", "main memory"),
        "disk_bytes": ("int", "scratch space"),
        "gpu_milli": ("int", "thousandths of all GPUs"),
    },
    "device": {
        "id": ("text", "its place on the node"),
        "vendor": ("text", "nvidia, amd, …"),
        "model": ("text", "such as RTX3090"),
        "memory_bytes": ("int", "its memory"),
        "free_milli": ("int", "thousandths of it that are free"),
    },
    "node": {
        **NODE_NAME,
        "self": ("bool", "whether it is the node that was asked"),
        "worker": ("bool", "whether it lends anything"),
        "total": ("amounts", "what it lends"),
        "free": ("amounts", "what of that is free"),
        "devices": ("list of device", "its GPUs"),
        "active": ("int", "tasks that it runs"),
        "draining": ("bool", "whether it takes no more"),
        "networked": ("list of text", "the drivers whose tasks may use the network"),
        "terms": (
            "text",
            "why not all is offered: to this node, or by this node to other owners",
        ),
        "weaker": (
            "list of text",
            "promises to the machine's owner that do not hold in full, and why",
        ),
        "drivers": ("list of text", "what can run tasks there"),
        "labels": ("map of text", "what jobs may ask for"),
        "rtt_us": ("int", "how far it is; 0 is not known"),
        "path": ("text", "self, direct, relay, or empty"),
        "standing": ("standing or null", "what became of its verified results"),
    },
    "output": {
        "task": ("text", "whose it is"),
        "folder": ("text", "where it was written"),
        "files": ("int", "how many files"),
        "bytes": ("int", "their size"),
        "checkpoint": ("bool", "whether it is a checkpoint, for want of outputs"),
    },
    "verdict": {**NODE_NAME, "reason": ("text", "why it does not run the task")},
    "explanation": {
        "task": ("text", "the task, or the first of several that are alike"),
        "state": ("text", "as of a job"),
        "needs": ("text", "what it asks for, in words"),
        "why": ("list of text", "why it is where it is"),
        "nodes": ("list of name", "where it runs"),
        "refused": ("list of verdict", "nodes that were asked and said no"),
        "rejected": ("list of verdict", "nodes that are short of something"),
        "fitting": ("int", "nodes that could run it now"),
        "helps": ("list of text", "what would let it start"),
        "cached": (
            "list of text",
            "on how many nodes its code and image are, if it waits",
        ),
        "answers": ("list of answer", "who gave a result, if it is verified"),
    },
    "prospect": {
        "node": ("node", "a node"),
        "when": ("text", "now, later or never"),
        "slots": ("int", "how many tasks it could take now"),
        "why": ("text", "what speaks for it, or against"),
    },
    "group": {
        "group": ("text", "tasks that become runnable together"),
        "tasks": ("int", "how many"),
        "needs": ("text", "what each asks for, in words"),
        "least": ("int", "how many must start at once"),
        "room": ("int", "how many could start now"),
        "prospects": ("list of prospect", "nodes, the best first"),
        "more": ("int", "nodes that are left out here"),
        "helps": ("list of text", "what would make room"),
    },
    "plan": {
        "fits_now": ("bool", "whether it would start now"),
        "needs": ("text", "what it asks for, in words"),
        "groups": ("list of group", "where each part of it would go"),
        "more": ("int", "groups that are left out here"),
    },
    "newcomer": {
        **NODE_NAME,
        "has": ("text", "what it says it would lend"),
        "code": ("text", "what its screen must show"),
    },
    "near": {
        **NODE_NAME,
        "shoal": ("text", "how its shoal is called"),
        "code": ("text", "what its screen must show"),
        "state": ("text", "looking, asking, accepted, joined, over"),
    },
    "deed": {
        "n": ("int", "counts the entries of this home"),
        "at_s": ("float", "when, in seconds since 1970"),
        "what": ("text", "what was done, such as submit or revoke"),
        "result": ("text", "done, refused or failed"),
        "way": ("text", "socket, token, page, certificate, link, wire or command"),
        "node": ("text", "the id of the node that did or signed it"),
        "owner": ("text", "whose node that is"),
        "address": ("text", "from where"),
        "uid": ("int or null", "of the user, if it came by the socket"),
        "job": ("text", "the job that it is about"),
        "of": ("text", "whose job that is, if it is another owner's"),
        "target": ("text", "who was let in, which secret, and the like"),
        "because": ("text", "details, or why not"),
        "count": ("int", "how many like it this entry stands for"),
        "addresses": ("int", "from how many addresses these came, if from several"),
    },
    "finding": {
        "what": ("text", "what was looked at"),
        "state": ("text", "ok, note or bad"),
        "said": ("text", "what was found"),
        "fix": ("text", "what to do; may be empty"),
    },
    "setting": {
        "name": ("text", "the setting"),
        "value": ("any", "text, bool, int, list of text, or null"),
        "origin": ("text", "a variable, a file, or default"),
    },
    "policy": {
        "name": ("text", "its name"),
        "origin": ("text", "shoal or installed"),
        "default": ("bool", "whether it is used if none is named"),
        "about": ("text", "what it favours"),
    },
    "check": {
        "check": ("text", "the promise"),
        "kept": ("bool", "whether it is kept"),
        "how": ("text", "how it was broken"),
    },
    "ping": {
        "node": ("name", "whom"),
        "path": ("text", "direct, stream, relay or self; empty if there is no link"),
        "sent": ("int", "how often it was asked"),
        "lost": ("int", "how often it did not answer in time"),
        "rtts_s": ("list of float", "how long each round trip took"),
        "trouble": ("text", "why there is no link, if that is known"),
    },
    **SIM_OBJECTS,
}

_JOB: Final = ("job", "the job as it is now")
_JOBS: Final = ("list of job", "the jobs, in the order of the answer")
_OUTPUTS: Final = ("list of output", "what was written for each task")
_SUBMITTED: Final[Shape] = {
    "job": _JOB,
    "needs": ("text", "what it asks for, in words"),
}

_PICTURE: Final[Shape] = {
    "at_s": ("float", "when, in seconds since 1970"),
    "nodes": ("list of node", "the node that was asked, and those it knows"),
    "jobs": ("list of job", "the latest first, and older ones that go on"),
}

ANSWERS: Final[dict[str, Shape]] = {
    "run": {"job": ("job", "the job as it ended"), "outputs": _OUTPUTS},
    "submit": {
        **_SUBMITTED,
        "offers?": ("plan", "where it could go, just before; with --offers"),
    },
    "ps": {
        "jobs": _JOBS,
        "total": ("int", "how many there are"),
        "silent?": ("list of silent", "nodes that did not answer, with --everywhere"),
        "unreached?": ("int", "other nodes that cannot be reached, with --everywhere"),
    },
    "show": {"job": _JOB, "tasks": ("list of task", "its tasks, up to --tasks")},
    "logs": {
        "task": ("text", "who wrote it"),
        "stream": ("text", "stdout or stderr"),
        "attempt": ("int", "in which attempt"),
        "offset": ("int", "bytes of the stream before it"),
        "text": ("text", "what was written, as UTF-8"),
        "base64?": ("text", "its bytes, if they are no UTF-8"),
    },
    "wait": {"jobs": _JOBS},
    "pull": {"job": ("text", "the id of the job"), "outputs": _OUTPUTS},
    "cancel": {"jobs": _JOBS},
    "retry": _SUBMITTED,
    "explain": {
        "job": ("text", "the id of the job"),
        "tasks": ("list of explanation", "tasks that are alike appear once"),
        "more": ("int", "groups that are left out here"),
    },
    "plan": OBJECTS["plan"],
    "up": {
        "pid": ("int", "the process of the node"),
        "shoal": ("text", "the shoal that it belongs to"),
        "api": ("text", "HOST:PORT for clients"),
        "web": ("text", "HOST:PORT of the page for browsers; empty if it is off"),
        "addresses": ("list of text", "where other nodes reach it"),
        "home": ("text", "the folder with its files"),
        "sandboxed": ("bool", "whether tasks are confined"),
        "node": ("node", "what it lends"),
    },
    "down": {
        "ended": ("bool", "whether there was a node to end"),
        "pid?": ("int", "the process that ended"),
        "tasks?": ("int", "tasks that were stopped"),
        "active_jobs?": ("int", "jobs that go on the next time"),
    },
    "nodes": {"nodes": ("list of node", "the node that was asked, and those it knows")},
    "top": _PICTURE,
    "monitor": _PICTURE,
    "ping": {"nodes": ("list of ping", "what came of asking each node")},
    "init": {
        "shoal": ("text", "the name of the new shoal"),
        "root": ("text", "the public key of its root"),
        "node": ("text", "the id of its first member"),
    },
    "invite": {
        "invitation": ("text", "what `shoal join` takes"),
        "shoal": ("text", "the shoal that it leads to"),
        "role": ("text", "what its holder may do"),
        "addresses": ("list of text", "where the invitation is honoured"),
        "ttl": ("text", "how long it holds"),
        "qr?": ("list of text", "with `--qr`: the rows of the code, 1 for dark"),
    },
    "join": {
        "shoal": ("text", "the shoal that was joined"),
        "node": ("text", "the id of this node"),
        "inviter": ("text", "the id of the node that let it in"),
        "roles": ("list of text", "what this node may do"),
    },
    "accept": {
        "shoal": ("text", "the shoal of this node"),
        "newcomers": ("list of newcomer", "who asks to be let in"),
        "near": ("near or null", "the shoal that this node asked"),
    },
    "renew": {
        "node": ("text", "the id of this node"),
        "ends_s": ("float", "when its new grant ends, in seconds since 1970"),
    },
    "revoke": {"revoked": ("name", "the node that is no member any more")},
    "doctor": {
        "well": ("bool", "whether nothing is bad"),
        "findings": ("list of finding", "what was looked at"),
    },
    "audit": {
        "entries": ("list of deed", "what was done, the oldest first"),
    },
    "events": {
        "number": ("int", "counts the events of this node"),
        "at_s": ("float", "when, in seconds since 1970"),
        "what": ("text", "the kind of event"),
        "text": ("text", "what happened, in words"),
        "job?": ("text", "the job that it happened to"),
        "task?": ("text", "the task that it happened to"),
        "node?": ("name", "the node that it is about"),
    },
    "web": {
        "address": ("text", "HOST:PORT of the page"),
        "url": ("text", "what a browser opens; the token is in it, so it is a secret"),
    },
    "set": {"settings": ("list of setting", "what counts, and where it comes from")},
    "secret list": {"secrets": ("list of text", "the names of all secrets")},
    "token show": {
        "path": ("text", "the file that it is in"),
        "token?": ("text", "what it is, without --path"),
    },
    "token rotate": {"path": ("text", "the file that the new one is in")},
    "policy list": {"policies": ("list of policy", "all that are installed")},
    "policy test": {
        "policy": ("text", "what was tested"),
        "kept": ("bool", "whether it keeps all promises"),
        "checks": ("list of check", "promise by promise"),
    },
    **SIM_ANSWERS,
}
LOOKS: Final = ("top", "monitor")
LINES: Final = ("logs", "events", *LOOKS)
"""These print one document for each piece or look, not one in all."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "any": (object,),
}


def breaches(shape: Shape, document: dict[str, Any], place: str = "$") -> list[str]:
    """Say where a document is not as documented; nothing if it is."""
    known = {name.removesuffix("?"): kind for name, (kind, _) in shape.items()}
    optional = {name.removesuffix("?") for name in shape if name.endswith("?")}
    found = [f"{place}.{name} is not there" for name in known if name not in document]
    found = [
        each for each in found if each.split()[0].rpartition(".")[2] not in optional
    ]
    for name, value in document.items():
        if name not in known:
            found.append(f"{place}.{name} is not documented")
        else:
            found += _wrong(known[name], value, f"{place}.{name}")
    return found


def _wrong(kind: str, value: object, place: str) -> list[str]:
    if kind.endswith(" or null"):
        kind = kind.removesuffix(" or null")
        return [] if value is None else _wrong(kind, value, place)
    if kind.startswith("list of ") and isinstance(value, list):
        each_kind = kind.removeprefix("list of ")
        pairs = enumerate(cast("list[object]", value))
        return [
            line for n, v in pairs for line in _wrong(each_kind, v, f"{place}[{n}]")
        ]
    if kind.startswith("map of ") and isinstance(value, dict):
        each_kind = kind.removeprefix("map of ")
        items = cast("dict[str, object]", value).items()
        return [line for k, v in items for line in _wrong(each_kind, v, f"{place}.{k}")]
    if kind in OBJECTS and isinstance(value, dict):
        return breaches(OBJECTS[kind], cast("dict[str, Any]", value), place)
    right = isinstance(value, _TYPES.get(kind, ()))
    if right and kind != "any" and isinstance(value, bool) != (kind == "bool"):
        right = False  # To Python, a bool is an int.
    return [] if right else [f"{place} is {value!r}, not {kind}"]
