"""The job screen: description, curves and output of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, cast, final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, RichLog, Sparkline, Static

from shoal.api.documents import state_of
from shoal.api.shoal_pb2 import STREAM_STDERR, LogsRequest
from shoal.cli.display.printing import (
    age,
    has_ended,
    places,
    table_lines,
    tasks_text,
    why,
)
from shoal.cli.display.results import has_results, result_table
from shoal.cli.display.task_output import names_of, screened
from shoal.cli.monitor.watching import TASKS_MAX, MonitorCurves
from shoal.cli.terminal import safe_line, safe_lines
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App, ComposeResult

    from shoal.api.shoal_pb2 import Job, LogPiece
    from shoal.cli.monitor.watching import NodeSource

T = TypeVar("T")

LINES_MAX: Final = 10_000
CURVES_MAX: Final = 8
RESULTS_MAX: Final = 8


@final
class JobScreen(Screen[None]):
    """Follows one job until it ends or the user goes back."""

    CSS = """
    #about { height: auto; padding: 0 1; background: $primary-background; }
    #results { height: auto; max-height: 30%; padding: 0 1; }
    #curves { height: auto; max-height: 50%; }
    .curve { height: 3; }
    .curve Static { width: 30; padding: 0 1; }
    .curve Sparkline { width: 1fr; height: 3; }
    #log { height: 1fr; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "Back"),
        Binding("end", "log_end", "End"),
    ]

    def __init__(self, source: NodeSource, job: str, refresh_s: float) -> None:
        super().__init__()
        self._source = source
        self._job = job
        self._refresh_s = refresh_s
        self._curves = MonitorCurves()
        self._rests: dict[tuple[str, int], bytes] = {}
        self._names: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        """Build the widgets."""
        yield Static(safe_line(f"job {self._job}"), id="about", markup=False)
        yield Static(id="results", markup=False)
        yield VerticalScroll(id="curves")
        yield RichLog(id="log", max_lines=LINES_MAX, wrap=True)
        yield Footer()

    def on_mount(self) -> None:
        """Start polling the job and following its output."""
        self._look()
        self.set_interval(self._refresh_s, self._look)
        # It may wait for a piece, or for this screen, when the screen is closed.
        self.run_worker(self._listen, thread=True, group="listen", exit_on_error=False)

    def action_log_end(self) -> None:
        """Scroll to the latest line."""
        self.query_one(RichLog).scroll_end()

    def _back(self, call: Callable[[T], object], value: T) -> None:
        """Make a call in the UI thread, unless the screen is closed."""
        if self.is_attached:
            app = cast("App[None]", self.app)  # pyright: ignore[reportUnknownMemberType]
            app.call_from_thread(call, value)

    # What it is.

    def _look(self) -> None:
        self.run_worker(
            self._ask, thread=True, exclusive=True, group="look", exit_on_error=False
        )

    def _ask(self) -> None:
        try:
            job = self._source.get(self._job, TASKS_MAX)
            told = self._source.curves(self._job, self._curves.latest_s)
        except ShoalError as error:
            self._back(self._say, error.what)
            return
        self._curves.names = names_of(job)
        self._back(self._curves.note, told)
        self._back(self.show, job)

    def _say(self, text: str) -> None:
        self.query_one("#about", Static).update(safe_lines(text))

    def show(self, job: Job) -> None:
        """Show the latest state of the job."""
        self._say(about(job))
        self._names = names_of(job)
        results = self.query_one("#results", Static)
        results.update(Text.from_ansi(results_text(job)))
        results.display = has_results(job)
        curves = self.query_one("#curves", VerticalScroll)
        known = {line.id for line in curves.children}
        for number, (name, points) in enumerate(self._curves):
            if number == CURVES_MAX:
                break
            id_ = f"curve-{number}"
            label = f"{safe_line(name)}\n{points[-1]:.5g}"
            if id_ in known:
                line = curves.query_one(f"#{id_}")
                line.query_one(Static).update(label)
                line.query_one(Sparkline).data = points
            else:
                parts = (Static(label, markup=False), Sparkline(points))
                curves.mount(Horizontal(*parts, id=id_, classes="curve"))

    # What it writes.

    def _listen(self) -> None:
        try:
            for piece in self._source.logs(LogsRequest(job=self._job, follow=True)):
                if not self.is_attached:
                    return
                self._back(self.write, piece)
        except ShoalError as error:
            self._back(self._say, error.what)

    def write(self, piece: LogPiece) -> None:
        """Append whole lines to the log; stderr is red."""
        key = (piece.task, piece.stream)
        *lines, self._rests[key] = (self._rests.get(key, b"") + piece.data).split(b"\n")
        style = "red" if piece.stream == STREAM_STDERR else ""
        where = self._names.get(piece.task) or piece.task.partition(".")[2]
        where = safe_line(where)
        for line in lines:
            text = screened(line)
            shown = Text.assemble((f"{where} ", "dim"), (text, style))
            self.query_one(RichLog).write(shown)


def results_text(job: Job) -> str:
    """Return the best tasks of a sweep with their metrics; nothing of other jobs."""
    if not has_results(job):
        return ""
    return "\n".join(table_lines(*result_table(job, None, RESULTS_MAX)))


def about(job: Job) -> str:
    """Return the lines at the top of the screen."""
    where = f" on {places(job.nodes)}" if job.nodes else ""
    first = safe_line(f"{job.id}  {job.name}   {state_of(job.state)}{where}")
    second = f"{tasks_text(job.counts)}   submitted {age(job.submitted_s)} ago"
    end = "" if not has_ended(job) else "   ended"
    reason = safe_line(why(job))
    return f"{first}\n{second}{end}" + (f"   {reason}" if reason else "")
