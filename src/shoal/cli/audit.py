"""`shoal audit`: who did what here."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.cli.exit_codes import ExitCode
from shoal.cli.options import json_option, talk
from shoal.cli.printing import echo_json, echo_table, short_id
from shoal.cli.terminal import echo
from shoal.core.auditing import Entry, check, read
from shoal.errors import UsageError
from shoal.runtime.audit import files, lines
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADINGS: Final = ("AT", "WHAT", "RESULT", "WHO", "FROM", "JOB", "ABOUT")
LOOK_S: Final = 0.5
ID_LENGTH: Final = 52


@click.command()
@click.option("--since", default="", metavar="2h", help="Only what is not older.")
@click.option("--who", default="", help="Only of this node, owner, address or way.")
@click.option("--what", default="", metavar="KIND", help="Only this: submit, revoke...")
@click.option("--job", default="", help="Only what is about this job.")
@click.option("--refused", is_flag=True, help="Only what was not allowed.")
@click.option(
    "-n",
    "--latest",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="At most so many, the last ones; 0 is all.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--verify", is_flag=True, help="See whether somebody changed the log.")
@click.option(
    "--head", default="", metavar="HASH", help="With --verify: it must be in there."
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
    """Print who did what here: who was let in, submitted, cancelled, read, and so on.

    It reads files of this home, so no node need run. Who has the right to write these
    files can also write another log; --verify shows what was changed in between, and
    prints the hash of the last line. Write that down elsewhere, and give it to --head.
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
        talk("nothing that is wanted is in the audit log")
    if len(found) > len(shown) and not as_json:
        talk(f"and {len(found) - len(shown)} earlier ones: -n 0")


def _filter(
    *, since: str, who: str, what: str, job: str, refused: bool
) -> Callable[[Entry], bool]:
    earliest_s = 0.0
    if since:
        from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

        earliest_s = time.time() - parse_duration(since)

    def is_wanted(entry: Entry) -> bool:
        return (
            entry.at_s >= earliest_s
            and (not what or entry.what == what)
            and (not job or entry.job == job)
            and (not refused or entry.result == "refused")
            and (not who or _is_about(entry, who))
        )

    return is_wanted


def _is_about(entry: Entry, who: str) -> bool:
    texts = (entry.node, entry.owner, entry.address, entry.way, entry.target, entry.of)
    names = [_petname(text) for text in (entry.node, entry.target)]
    return who in (*texts, *names) or entry.address.startswith(f"{who}:")


def _entries(home: Home) -> Iterator[Entry]:
    for line in lines(home):
        if (entry := read(line)) is not None:
            yield entry


def _later(home: Home, seen: list[Entry]) -> Iterator[Entry]:
    """Return entries as they are written; blocks for ever."""
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


def _say(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        echo_json(fields(entry))
    else:
        echo("  ".join(cell for cell in row(entry) if cell != "-"))


def fields(entry: Entry) -> dict[str, Any]:
    """Return what JSON says of an entry: all fields, also the empty ones."""
    return {
        name: getattr(entry, name) for name in entry.__struct_fields__ if name != "prev"
    }


def row(entry: Entry) -> tuple[str, ...]:
    """Return what a table says of an entry, under `HEADINGS`."""
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
    """Say a node by its petname and the begin of its id; others as they are."""
    petname = _petname(text)
    return f"{petname} ({short_id(text)})" if petname else text


def _petname(text: str) -> str:
    if len(text) != ID_LENGTH:
        return ""
    from shoal.model.ids import NodeId  # noqa: PLC0415
    from shoal.net.petname import petname  # noqa: PLC0415 - Slow to import.

    return petname(NodeId(text))


def _verify(home: Home, head: str, *, as_json: bool) -> None:
    heads: set[str] = set()

    def noted() -> Iterator[bytes]:
        from shoal.core.auditing import hash_of  # noqa: PLC0415 - Only for this.

        for line in lines(home):
            heads.add(hash_of(line))
            yield line

    found = check(noted())
    if not found.entries and not found.flaws:
        raise UsageError(
            "there is no audit log",
            because=f"{home.audit} is empty",
            hint="a node writes it from its first `shoal up`",
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
            echo("the line with the given hash is not there any more")
        ends = f"entries {found.first} to {found.last}"
        echo(f"{'the chain is whole' if is_whole else 'somebody changed it'}: {ends}")
        echo(f"head {found.head}")
    sys.exit(ExitCode.OK if is_whole else ExitCode.ERROR)
