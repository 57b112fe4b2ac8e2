"""The monitor's main screen: nodes above, jobs below, key bindings for actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from shoal.api.documents import state_of
from shoal.cli.jobs.explain import lines_of
from shoal.cli.monitor import tables
from shoal.cli.monitor.job_screen import JobScreen
from shoal.cli.monitor.newcomers import (
    Consent,
    JoinDecision,
    WaitingRequests,
    asked,
    banner,
)
from shoal.cli.monitor.watching import Snapshot, look
from shoal.cli.terminal import safe_line, safe_lines
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import Job
    from shoal.cli.monitor.watching import NodeSource


@final
class Question(ModalScreen[bool]):
    """Asks before an action that cannot be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show the question."""
        yield Static(f"{self._text}  [y/N]", id="question", markup=False)

    def action_answer(self, said: bool) -> None:
        """Close with the answer."""
        self.dismiss(said)


@final
class Monitor(App[None]):
    """Shows a shoal as one node sees it, refreshed every few seconds."""

    CSS = """
    #summary { height: 1; padding: 0 1; background: $primary-background; }
    #nodes { height: auto; max-height: 40%; margin-bottom: 1; }
    #jobs { height: 1fr; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    #waiting { display: none; height: auto; padding: 0 1; background: $warning-muted; }
    #waiting.shown { display: block; }
    #question { width: auto; height: auto; padding: 1 3; border: round $warning; }
    #question > Static { width: auto; }
    Question, JoinDecision, Consent { align: center middle; }
    """
    TITLE = "shoal"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Job"),
        Binding("l", "open", "Logs"),
        Binding("e", "explain", "Explain"),
        Binding("c", "cancel", "Cancel"),
        Binding("a", "accept", "Accept"),
        Binding("/", "filter", "Filter"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(
        self,
        source: NodeSource,
        *,
        refresh_s: float = 1.0,
        worker: str = "",
        readonly: bool = False,
    ) -> None:
        super().__init__()
        self._source = source
        self._refresh_s = refresh_s
        self._worker = worker
        self._readonly = readonly
        self._wanted = ""  # what the names of shown jobs contain
        self._picture = Snapshot((), ())
        self._waiting: tuple[WaitingRequests, ...] = ()
        self._door = Static("", id="waiting", markup=False)
        self._top = Static("", id="summary", markup=False)
        self._node_table: DataTable[Text] = DataTable(id="nodes", cursor_type="none")
        self._job_table: DataTable[Text] = DataTable(id="jobs", cursor_type="row")

    def compose(self) -> ComposeResult:
        """Build the widgets."""
        yield self._top
        yield self._door
        yield self._node_table
        yield Input(placeholder="part of an id, a name or a state", id="filter")
        yield self._job_table
        yield Footer()

    def on_mount(self) -> None:
        """Start polling."""
        self._node_table.add_columns(*tables.NODE_COLUMNS)
        self._job_table.add_columns(*tables.JOB_COLUMNS)
        self._job_table.focus()
        self._look()
        self.set_interval(self._refresh_s, self._look)

    # Looking.

    def _look(self) -> None:
        self.run_worker(self._ask, thread=True, exclusive=True, group="look")

    def _ask(self) -> None:
        try:
            picture = look(self._source, self._worker)
            waiting = asked(self._source)
        except ShoalError as error:
            text = f"{error.what}: {error.because}"
            self.call_from_thread(self._top.update, safe_line(text))
            return
        self.call_from_thread(self.show, picture)
        self.call_from_thread(self.tell_of, waiting)

    def show(self, picture: Snapshot) -> None:
        """Show a new snapshot; the cursor stays on its job."""
        self._picture = picture
        self._top.update(tables.summary(picture))
        self._node_table.clear()
        for node in picture.nodes:
            self._node_table.add_row(*tables.node_row(node), key=node.name.id)
        chosen = self._chosen()
        self._job_table.clear()
        shown = [job for job in picture.jobs if self._is_wanted(job)]
        for place, job in enumerate(shown):
            self._job_table.add_row(*tables.job_row(job), key=job.id)
            if job.id == chosen:
                self._job_table.move_cursor(row=place)

    def tell_of(self, waiting: tuple[WaitingRequests, ...]) -> None:
        """Announce join requests; the key to answer exists only if there are any."""
        self._waiting = waiting
        answer = "`shoal accept` answers" if self._readonly else "a answers"
        self._door.update(banner(waiting, answer))
        self._door.set_class(bool(waiting), "shown")
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide keys that have nothing to act on."""
        return action != "accept" or bool(self._waiting and not self._readonly)

    def _is_wanted(self, job: Job) -> bool:
        text = f"{job.id} {job.name} {state_of(job.state)}"
        return self._wanted.lower() in text.lower()

    def _chosen(self) -> str:
        """Return the job under the cursor; empty if there is none."""
        table = self._job_table
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    # Keys.

    def on_data_table_row_selected(self, _event: DataTable.RowSelected) -> None:
        """Open the job on which enter was pressed."""
        self.action_open()

    def action_open(self) -> None:
        """Show the job under the cursor and its output."""
        if job := self._chosen():
            self.push_screen(JobScreen(self._source, job, self._refresh_s))

    def action_explain(self) -> None:
        """Explain the placement of the job under the cursor."""
        if job := self._chosen():
            self.run_worker(lambda: self._explain(job), thread=True)

    def _explain(self, job: str) -> None:
        try:
            tasks = self._source.explain(job).tasks
            text = "\n".join(
                safe_line(line) for task in tasks for line in lines_of(task)
            )
        except ShoalError as error:
            text = error.what
        self.call_from_thread(self.notify, safe_lines(text), timeout=15, markup=False)

    def action_cancel(self) -> None:
        """Cancel the job under the cursor after confirmation."""
        job = self._chosen()
        if not job:
            return
        if self._readonly:
            self.notify("this monitor is read-only", severity="warning")
            return

        def answered(said: bool | None) -> None:
            if said:
                self.run_worker(lambda: self._cancel(job), thread=True)

        self.push_screen(Question(f"cancel job {job}?"), answered)

    def _cancel(self, job: str) -> None:
        try:
            self._source.cancel(job, "cancelled in shoal top")
            text = f"job {job} is cancelled"
        except ShoalError as error:
            text = error.what
        self.call_from_thread(self.notify, safe_lines(text), markup=False)

    def action_accept(self) -> None:
        """Ask about pending requests until one of them is answered."""
        self._ask_about(self._waiting)

    def _ask_about(self, waiting: tuple[WaitingRequests, ...]) -> None:
        if not waiting:
            return
        one = waiting[0]

        def answered(said: bool | None) -> None:
            if said is None:
                self._ask_about(waiting[1:])
            else:  # A second key press must not approve a request that was never shown.
                self.run_worker(lambda: self._decide(one, accepts=said), thread=True)

        self.push_screen(
            JoinDecision(one) if one.is_newcomer else Consent(one), answered
        )

    def _decide(self, one: WaitingRequests, *, accepts: bool) -> None:
        try:
            self._source.accept(one.node, code=one.code, decline=not accepts)
            text = f"{one.petname} {'may join' if accepts else 'was declined'}"
            if not one.is_newcomer:
                text = f"joining {one.petname}"
        except ShoalError as error:
            text = error.what
        self.call_from_thread(self.notify, safe_lines(text), markup=False)
        self.call_from_thread(self._look)

    def action_filter(self) -> None:
        """Prompt for a filter."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only jobs that contain the text."""
        self._wanted = event.value
        self.show(self._picture)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go back to the jobs; an empty filter shows all."""
        if not event.value:
            event.input.remove_class("shown")
        self._job_table.focus()
