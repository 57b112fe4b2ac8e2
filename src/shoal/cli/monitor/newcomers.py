"""Who waits for an answer of the user: machines near by, as with `shoal accept`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, final

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from shoal.cli.printing import quoted, shortened
from shoal.cli.terminal import safe_line
from shoal.errors import NotAllowedError
from shoal.net.requests import is_code

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from shoal.api import shoal_pb2 as pb
    from shoal.cli.monitor.watching import Source

HAS_WIDTH: Final = 60
LINES_MAX: Final = 3
WARNING: Final = "Members may run code on each other's machines."
TYPE_IT: Final = "Type the code that its own screen shows:"
ANOTHER: Final = "That is another code: somebody may be in between."
JOIN_IF: Final = "Join only if the other machine took this code."


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
        name = safe_line(near.name.petname)
        says = f"{name} lets this machine into {quoted(near.shoal)}"
        waiting.append(Waiting(near.name.id, name, says, near.code, ""))
    return tuple(waiting)


def _newcomer(one: pb.Newcomer, shoal: str) -> Waiting:
    name, has = safe_line(one.name.petname), shortened(one.has, HAS_WIDTH) or "nothing"
    says = f"{name} wants to join {quoted(shoal)}"
    return Waiting(one.name.id, name, says, one.code, has)


def banner(waiting: tuple[Waiting, ...], answer: str) -> str:
    """Return the lines that tell of those who wait; `answer` is what one can do."""
    lines = [safe_line(one.says) for one in waiting[:LINES_MAX]]
    if len(waiting) > LINES_MAX:
        lines.append(f"and {len(waiting) - LINES_MAX} more")
    return "\n".join(lines) + f" · {answer}"


@final
class Decision(ModalScreen[bool | None]):
    """Asks whether to let one in who waits: by the code that its own screen shows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d", "answer(False)", "Turn away", priority=True),
        Binding("escape", "answer(None)", "Not now"),
    ]

    def __init__(self, one: Waiting) -> None:
        super().__init__()
        self._one = one
        self._trouble = Static("", id="trouble", markup=False)

    def compose(self) -> ComposeResult:
        """Show who it is, and take the code, which is to be read on its screen."""
        one = self._one
        about = (
            f'{one.says}\n\nit says that it lends "{one.has}"\n{WARNING}\n\n{TYPE_IT}'
        )
        keys = "[enter] let it in   [ctrl+d] turn it away   [esc] not now"
        with Vertical(id="question"):
            yield Static(about, markup=False)
            yield Input(placeholder="heron-otter-427", id="code", max_length=40)
            yield self._trouble
            yield Static(f"\n{keys}", markup=False)

    def on_mount(self) -> None:
        """Take what is typed."""
        self.query_one("#code", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Let it in if that is its code; else say so, and wait."""
        event.stop()
        if is_code(event.value, self._one.code):
            self.dismiss(True)
        elif event.value:
            self._trouble.update(ANOTHER)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep it from the filter behind this screen."""
        event.stop()

    def action_answer(self, said: bool | None) -> None:
        """Close with the answer; None leaves them waiting."""
        self.dismiss(said)


@final
class Consent(ModalScreen[bool | None]):
    """Asks whether to join those who have let this machine in: yes, or not now."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(None)", "Not now"),
    ]

    def __init__(self, one: Waiting) -> None:
        super().__init__()
        self._one = one

    def compose(self) -> ComposeResult:
        """Show the code first, then who it is."""
        one, keys = self._one, "[y] join   [n] not now"
        about = f"code   {safe_line(one.code)}\n\n{one.says}\n\n{JOIN_IF}\n{WARNING}"
        yield Static(f"{about}\n\n{keys}", id="question", markup=False)

    def action_answer(self, said: bool | None) -> None:
        """Close with the answer; None leaves them waiting."""
        self.dismiss(said)
