"""Join requests that wait for the user's answer, as in `shoal accept`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, final

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from shoal.cli.display.printing import quoted, shortened
from shoal.cli.terminal import safe_line
from shoal.errors import NotAllowedError
from shoal.net.joining.join_codes import is_code

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from shoal.api import shoal_pb2 as pb
    from shoal.cli.monitor.watching import NodeSource

HAS_WIDTH: Final = 60
LINES_MAX: Final = 3
WARNING: Final = "Members can run code on each other's machines."
TYPE_IT: Final = "Type the code shown on its screen:"
ANOTHER: Final = "The code differs: somebody may be intercepting."
JOIN_IF: Final = "Join only if the other machine accepted this code."


class WaitingRequests(NamedTuple):
    """A machine that asks to join, or that lets this machine join."""

    node: str
    petname: str
    says: str  # in one line, without the code
    code: str
    has: str  # what it would lend; nothing if it lets this machine in

    @property
    def is_newcomer(self) -> bool:
        """Whether it asks to join this shoal; else this machine asked to join."""
        return bool(self.has)


def asked(source: NodeSource) -> tuple[WaitingRequests, ...]:
    """Return the requests that this user may answer."""
    try:
        reply = source.requests()
    except NotAllowedError:  # It is for admins to decide.
        return ()
    waiting = [_newcomer(one, reply.shoal) for one in reply.newcomers]
    near = reply.near
    if near.state == "accepted":
        name = safe_line(near.name.petname)
        says = f"{name} lets this machine join {quoted(near.shoal)}"
        waiting.append(WaitingRequests(near.name.id, name, says, near.code, ""))
    return tuple(waiting)


def _newcomer(one: pb.Newcomer, shoal: str) -> WaitingRequests:
    name, has = safe_line(one.name.petname), shortened(one.has, HAS_WIDTH) or "nothing"
    says = f"{name} wants to join {quoted(shoal)}"
    return WaitingRequests(one.name.id, name, says, one.code, has)


def banner(waiting: tuple[WaitingRequests, ...], answer: str) -> str:
    """Return the lines that announce requests; `answer` says how to respond."""
    lines = [safe_line(one.says) for one in waiting[:LINES_MAX]]
    if len(waiting) > LINES_MAX:
        lines.append(f"and {len(waiting) - LINES_MAX} more")
    return "\n".join(lines) + f" · {answer}"


@final
class JoinDecision(ModalScreen[bool | None]):
    """Prompts for the code of a join request."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d", "answer(False)", "Turn away", priority=True),
        Binding("escape", "answer(None)", "Not now"),
    ]

    def __init__(self, one: WaitingRequests) -> None:
        super().__init__()
        self._one = one
        self._trouble = Static("", id="trouble", markup=False)

    def compose(self) -> ComposeResult:
        """Show the request and an input for the code on the other screen."""
        one = self._one
        about = f'{one.says}\n\nit says it lends "{one.has}"\n{WARNING}\n\n{TYPE_IT}'
        keys = "[enter] approve   [ctrl+d] decline   [esc] not now"
        with Vertical(id="question"):
            yield Static(about, markup=False)
            yield Input(placeholder="heron-otter-427", id="code", max_length=40)
            yield self._trouble
            yield Static(f"\n{keys}", markup=False)

    def on_mount(self) -> None:
        """Submit the typed code."""
        self.query_one("#code", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Approve the request if the code matches; else say so and wait."""
        event.stop()
        if is_code(event.value, self._one.code):
            self.dismiss(True)
        elif event.value:
            self._trouble.update(ANOTHER)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep the event from the filter behind this screen."""
        event.stop()

    def action_answer(self, said: bool | None) -> None:
        """Close with the answer; None leaves the request pending."""
        self.dismiss(said)


@final
class Consent(ModalScreen[bool | None]):
    """Asks whether to join the shoal that approved this machine."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(None)", "Not now"),
    ]

    def __init__(self, one: WaitingRequests) -> None:
        super().__init__()
        self._one = one

    def compose(self) -> ComposeResult:
        """Show the code first, then the shoal."""
        one, keys = self._one, "[y] join   [n] not now"
        about = f"code   {safe_line(one.code)}\n\n{one.says}\n\n{JOIN_IF}\n{WARNING}"
        yield Static(f"{about}\n\n{keys}", id="question", markup=False)

    def action_answer(self, said: bool | None) -> None:
        """Close with the answer; None leaves the request pending."""
        self.dismiss(said)
