"""`shoal audit`: print the audit log."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.cli.display.printing import echo_json, echo_table, short_id
from shoal.cli.exit_codes import ExitCode
from shoal.cli.options import json_option, talk
from shoal.cli.terminal import echo
from shoal.core.durability.audit_chain import AuditEntry, check, read
from shoal.errors import UsageError
from shoal.runtime.durability.audit_log import files, lines
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADINGS: Final = ("AT", "WHAT", "RESULT", "WHO", "FROM", "JOB", "ABOUT")
LOOK_S: Final = 0.5
ID_LENGTH: Final = 52


@click.command()
@click.option("--since", default="", metavar="2h", help="Only entries newer than this.")
@click.option(
    "--who", default="", help="Only from this node, owner, address or way in."
)
@click.option(
    "--what", default="", metavar="KIND", help="Only this kind: submit, revoke..."
)
@click.option("--job", default="", help="Only about this job.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option(
    "-n",
    "--latest",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Number of latest entries to print; 0 for all.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow until Ctrl-C.")
@click.option("--verify", is_flag=True, help="Check whether the log was altered.")
@click.option(
    "--head",
    default="",
    metavar="HASH",
    help="With --verify: hash that the log must contain.",
)
@json_option
def audit(
    latest: int,
    follow: bool,
    verify: bool,
    head: str,
    as_json: bool,
    **wanted: Any,  # noqa: ANN401
) -> None:
    """Print the audit log: who joined, submitted, cancelled, read, and so on.

    The log is read from files, so no node need run. Anyone who can write these files
    can also replace the log. --verify detects changes and prints the hash of the last
    line: keep it elsewhere, and pass it to --head later.
    """
    home = Home.default()
    if verify:
        _verify(home, head, as_json=as_json)
        return
    is_wanted = _filter(**wanted)
    found = [entry for entry in _entries(home) if is_wanted(entry)]
    shown = found[-latest:] if latest else found
    if follow:
        for entry in (*shown, *_later(home, found)):
            if is_wanted(entry):
                _say(entry, as_json=as_json)
        return
    if as_json:
        echo_json({"entries": [fields(entry) for entry in shown]})
    elif shown:
        echo_table(HEADINGS, [row(entry) for entry in shown])
    else:
        talk("the audit log has no matching entries")
    if len(found) > len(shown) and not as_json:
        talk(f"and {len(found) - len(shown)} earlier ones: -n 0")


def _filter(
    *, since: str, who: str, what: str, job: str, refused: bool
) -> Callable[[AuditEntry], bool]:
    earliest_s = 0.0
    if since:
        from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

        earliest_s = time.time() - parse_duration(since)

    def is_wanted(entry: AuditEntry) -> bool:
        return (
            entry.at_s >= earliest_s
            and (not what or entry.what == what)
            and (not job or entry.job == job)
            and (not refused or entry.result == "refused")
            and (not who or _is_about(entry, who))
        )

    return is_wanted


def _is_about(entry: AuditEntry, who: str) -> bool:
    texts = (entry.node, entry.owner, entry.address, entry.way, entry.target, entry.of)
    names = [_petname(text) for text in (entry.node, entry.target)]
    return who in (*texts, *names) or entry.address.startswith(f"{who}:")


def _entries(home: Home) -> Iterator[AuditEntry]:
    for line in lines(home):
        if (entry := read(line)) is not None:
            yield entry


def _later(home: Home, seen: list[AuditEntry]) -> Iterator[AuditEntry]:
    """Yield entries as they are written; never returns."""
    last = max((entry.n for entry in _entries(home)), default=0)
    last = min(last, seen[-1].n) if seen else last
    size = -1
    while True:
        sys.stdout.flush()
        paths = files(home.audit)
        now = sum(path.stat().st_size for path in paths[-2:]) if paths else 0
        if now != size:
            size = now
            for entry in _entries(home):
                if entry.n > last:
                    last = entry.n
                    yield entry
        time.sleep(LOOK_S)


def _say(entry: AuditEntry, *, as_json: bool) -> None:
    if as_json:
        echo_json(fields(entry))
    else:
        echo("  ".join(cell for cell in row(entry) if cell != "-"))


def fields(entry: AuditEntry) -> dict[str, Any]:
    """Return all fields of an entry for JSON, including empty ones."""
    return {
        name: getattr(entry, name) for name in entry.__struct_fields__ if name != "prev"
    }


def row(entry: AuditEntry) -> tuple[str, ...]:
    """Return a table row for an entry, under `HEADINGS`."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at_s))
    who = _name(entry.node) or ("the user" if entry.uid is None else f"uid {entry.uid}")
    if entry.way in ("", "wire"):
        who = _name(entry.node) or "-"
    about = [_name(entry.target), f"of {_name(entry.of)}" if entry.of else ""]
    many = f"{entry.count} times" if entry.count > 1 else ""
    about += [many, f"from {entry.addresses} addresses" if entry.addresses else ""]
    where = " ".join(filter(None, (entry.way, entry.address))) or "-"
    return (
        at,
        entry.what,
        entry.result,
        who,
        where,
        entry.job or "-",
        " ".join(filter(None, (*about, entry.because))),
    )


def _name(text: str) -> str:
    """Format a node id as petname and prefix; return other texts unchanged."""
    petname = _petname(text)
    return f"{petname} ({short_id(text)})" if petname else text


def _petname(text: str) -> str:
    if len(text) != ID_LENGTH:
        return ""
    from shoal.model.ids import NodeId  # noqa: PLC0415
    from shoal.net.identity.petname import petname  # noqa: PLC0415 - Slow to import.

    return petname(NodeId(text))


def _verify(home: Home, head: str, *, as_json: bool) -> None:
    heads: set[str] = set()

    def noted() -> Iterator[bytes]:
        from shoal.core.durability.audit_chain import hash_of  # noqa: PLC0415 - Only for this.

        for line in lines(home):
            heads.add(hash_of(line))
            yield line

    found = check(noted())
    if not found.entries and not found.flaws:
        raise UsageError(
            "there is no audit log",
            because=f"{home.audit} is empty",
            hint="a node writes it from its first `shoal up` on",
        )
    is_missing = bool(head) and head not in heads
    is_whole = not found.flaws and not is_missing
    if as_json:
        flaws = [flaw._asdict() for flaw in found.flaws]
        counted = {"entries": found.entries, "first": found.first, "last": found.last}
        echo_json({"whole": is_whole, **counted, "head": found.head, "flaws": flaws})
    else:
        for flaw in found.flaws:
            echo(f"line {flaw.place}: {flaw.what}")
        if is_missing:
            echo("the line with the given hash is gone")
        ends = f"entries {found.first} to {found.last}"
        echo(f"{'the chain is intact' if is_whole else 'the log was altered'}: {ends}")
        echo(f"head {found.head}")
    sys.exit(ExitCode.OK if is_whole else ExitCode.ERROR)
