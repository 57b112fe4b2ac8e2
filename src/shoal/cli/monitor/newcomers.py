"""Who waits for an answer of the user: machines near by, as with `shoal accept`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, final

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from shoal.cli.printing import shortened
from shoal.errors import NotAllowedError

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from shoal.api import shoal_pb2 as pb
    from shoal.cli.monitor.watching import Source

HAS_WIDTH: Final = 60
LINES_MAX: Final = 3
WARNING: Final = """\
Say yes only if the other screen shows the same code:
members may run code on each other's machines."""


class Waiting(NamedTuple):
    """Somebody who asks to be let in here, or who lets this machine in."""

    node: str
    petname: str
    says: str  # in one line, without the code
    code: str
    has: str  # what it would lend; nothing if it lets this machine in

    @property
    def is_newcomer(self) -> bool:
        """Whether it wants to join; else this machine does, and has agreed to ask."""
        return bool(self.has)


def asked(source: Source) -> tuple[Waiting, ...]:
    """Return who waits for an answer that this user may give."""
    try:
        reply = source.requests()
    except NotAllowedError:  # It is for admins to decide.
        return ()
    waiting = [_newcomer(one, reply.shoal) for one in reply.newcomers]
    near = reply.near
    if near.state == "accepted":
        name = near.name.petname
        says = f'{name} lets this machine into "{near.shoal}"'
        waiting.append(Waiting(near.name.id, name, says, near.code, ""))
    return tuple(waiting)


def _newcomer(one: pb.Newcomer, shoal: str) -> Waiting:
    name, has = one.name.petname, shortened(one.has, HAS_WIDTH) or "nothing"
    return Waiting(one.name.id, name, f'{name} wants to join "{shoal}"', one.code, has)


def banner(waiting: tuple[Waiting, ...], answer: str) -> str:
    """Return the lines that tell of those who wait; `answer` is what one can do."""
    lines = [f"{one.says} · code {one.code}" for one in waiting[:LINES_MAX]]
    if len(waiting) > LINES_MAX:
        lines.append(f"and {len(waiting) - LINES_MAX} more")
    return "\n".join(lines) + f" · {answer}"


@final
class Decision(ModalScreen[bool | None]):
    """Asks about one who waits: yes, no, or not now."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("d", "answer(False)", "Turn away"),
        Binding("n,escape", "answer(None)", "Not now"),
    ]

    def __init__(self, one: Waiting) -> None:
        super().__init__()
        self._one = one

    def compose(self) -> ComposeResult:
        """Show who it is, and what can be answered."""
        one, keys = self._one, "[y] join   [n] not now"
        about = f"{one.says}\n\ncode   {one.code}"
        if one.is_newcomer:
            about += f"\nlends  {one.has}"
            keys = "[y] let it in   [d] turn it away   [n] not now"
        yield Static(f"{about}\n\n{WARNING}\n\n{keys}", id="question", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Turn away only who can be: to not join it is enough to say nothing."""
        return self._one.is_newcomer or (action, parameters) != ("answer", (False,))

    def action_answer(self, said: bool | None) -> None:
        """Close with the answer; None leaves them waiting."""
        self.dismiss(said)
