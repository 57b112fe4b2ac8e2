"""A sweep for people: tables for terminals and guides, pictures, and a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from rich.table import Table

from shoal.lab.report.charts import curve, legend
from shoal.lab.report.formatting import count, seconds
from shoal.lab.report.page import STYLE, document
from shoal.lab.report.svg import PlotFrame, element, picture, text, title, with_key
from shoal.lab.report.sweep_figures import METRICS, TIE

if TYPE_CHECKING:
    from shoal.lab.report.sweep_figures import ColumnSummary, ScenarioLine, SweepFigures

WIDTH: Final = 960.0
SQUARE_H: Final = 17.0
LABELS_W: Final = 300.0
TOP: Final = 78.0
HOT: Final = 2.0
"""A policy that takes this many times as long as the best other is as red as can be."""

PROFILE_MOST: Final = 3.0
PROFILE_STEPS: Final = 200


SUMMARY_HEAD: Final = (
    *("best in", "typical", "worst", "best in (p99)", "typical (p99)", "worst (p99)"),
    *("not ended", "refusals per task", "messages per job"),
)


def summary_row(summary: ColumnSummary, scenarios: int) -> tuple[str, ...]:
    """Return the figures of one policy, as under `SUMMARY_HEAD`."""
    cells: list[str] = []
    for metric in METRICS:
        cells.append(f"{summary.wins[metric]} of {scenarios}")
        cells.append(f"{summary.typical[metric]:.2f}")
        cells.append(f"{summary.worst[metric]:.2f}")
    cells.append(count(summary.unended))
    cells.append(f"{summary.refusals_per_start:.2f}")
    cells.append(count(summary.messages_per_job))
    return tuple(cells)


def terminal_tables(figures: SweepFigures) -> list[Table]:
    """Return a table of every scenario for each metric, and one of all policies."""
    found: list[Table] = []
    for metric, name in METRICS.items():
        table = _plain(f"{name}, averaged over seeds")
        for axis in figures.axes:
            table.add_column(axis, no_wrap=True)
        for column in figures.columns:
            table.add_column(column, justify="right", no_wrap=True)
        for line in figures.lines:
            values = [_told(line, metric, c, "[bold]{}[/]") for c in figures.columns]
            table.add_row(*line.labels, *values)
        found.append(table)
    table = _plain("policies against the best other, as factors")
    table.add_column("", no_wrap=True)
    for head in SUMMARY_HEAD:
        table.add_column(head, justify="right", no_wrap=True)
    for summary in figures.summaries:
        table.add_row(summary.column, *summary_row(summary, len(figures.lines)))
    return [*found, table]


def unended_lines(figures: SweepFigures) -> list[str]:
    """Return a line for each policy under which jobs did not end, with a reason."""
    return [
        f"{one.column}: {count(one.unended)} jobs did not end"
        + (f"; one of them: {one.why_unended}" if one.why_unended else "")
        for one in figures.summaries
        if one.unended
    ]


def _plain(words: str) -> Table:
    return Table(title=words, title_justify="left", title_style="bold", box=None)


def _told(line: ScenarioLine, metric: str, column: str, best: str) -> str:
    value = line.values[metric].get(column)
    if value is None:
        return "-"
    told = seconds(value)
    return best.format(told) if line.ratio(metric, column) <= TIE else told


def markdown_summary(figures: SweepFigures) -> str:
    """Return the table of all policies for a guide."""
    rows = [
        [f"`{one.column}`", *summary_row(one, len(figures.lines))]
        for one in figures.summaries
    ]
    return _markdown(["policy", *SUMMARY_HEAD], rows)


def markdown_lines(figures: SweepFigures, metric: str) -> str:
    """Return the table of all scenarios for a guide."""
    rows = [
        [*line.labels, *(_told(line, metric, c, "**{}**") for c in figures.columns)]
        for line in figures.lines
    ]
    return _markdown([*figures.axes, *figures.columns], rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def sweep_page(figures: SweepFigures, name: str) -> str:
    """Return the whole page, which fetches nothing."""
    scenarios = len(figures.lines)
    body = [
        element("h1", escape(name)),
        element(
            "p",
            f"{scenarios} scenarios, each the mean of up to "
            f"{max(line.seeds for line in figures.lines)} seeds; "
            f"{len(figures.columns)} policies or overlays",
            class_="sub",
        ),
        *(element("p", escape(line), class_="note") for line in unended_lines(figures)),
        element("h2", "Against the best other"),
        element(
            "p",
            "How many times as long as with the best other policy: typically (the "
            "geometric mean over scenarios) and at worst.",
            class_="note",
        ),
        element("div", _html_summary(figures), class_="card"),
    ]
    for metric, words in METRICS.items():
        drawn = profile(figures, metric)
        body += [
            element("h2", escape(words.capitalize())),
            element("div", legend(figures.columns) + drawn, class_="card"),
            element("div", heat_map(figures, metric), class_="card"),
        ]
    return document(name, "".join(body))


def _html_summary(figures: SweepFigures) -> str:
    head = "".join(element("th", escape(word)) for word in ("", *SUMMARY_HEAD))
    rows = [
        element(
            "tr",
            "".join(
                element("td", escape(cell))
                for cell in (one.column, *summary_row(one, len(figures.lines)))
            ),
        )
        for one in figures.summaries
    ]
    return element(
        "table",
        element("thead", element("tr", head)) + element("tbody", "".join(rows)),
    )


def sweep_pictures(figures: SweepFigures) -> dict[str, str]:
    """Return every picture as a file of its own, by name."""
    found: dict[str, str] = {}
    for metric in METRICS:
        short = metric.removeprefix("jct_").removesuffix("_s")
        found[f"profile-{short}"] = with_key(
            profile(figures, metric), list(figures.columns)
        )
        found[f"grid-{short}"] = heat_map(figures, metric)
    return {
        f"{name}.svg": drawn.replace(">", f"><style>{STYLE}</style>", 1)
        for name, drawn in found.items()
    }


def heat_map(figures: SweepFigures, metric: str) -> str:
    """Return one square for each scenario and policy: the redder, the worse."""
    wide = (WIDTH - LABELS_W) / max(1, len(figures.columns))
    axes = " · ".join(figures.axes)
    parts = [text(LABELS_W - 10, TOP - 8, axes, class_="name", text_anchor="end")]
    for place, column in enumerate(figures.columns):
        x = LABELS_W + (place + 0.5) * wide
        turn = f"rotate(-35 {x:.1f} {TOP - 8:.1f})"
        parts.append(text(x, TOP - 8, column, class_="name", transform=turn))
    for row, line in enumerate(figures.lines):
        y = TOP + row * SQUARE_H
        label = " · ".join(line.labels)
        parts.append(
            text(LABELS_W - 10, y + 12, label, class_="tick", text_anchor="end")
        )
        parts += [
            _square(line, metric, column, LABELS_W + place * wide, y, wide)
            for place, column in enumerate(figures.columns)
        ]
    height = TOP + len(figures.lines) * SQUARE_H + 10
    return picture(WIDTH, height, "".join(parts), f"{METRICS[metric]} by scenario")


def _square(
    line: ScenarioLine, metric: str, column: str, x: float, y: float, wide: float
) -> str:
    ratio = line.ratio(metric, column)
    heat = min(1.0, max(0.0, (ratio - 1.0) / (HOT - 1.0)))
    told = seconds(line.values[metric][column])
    words = f"{' · '.join(line.labels)}, {column}: {told}, {ratio:.2f} of the best"
    shown = text(
        x + wide / 2,
        y + 12,
        f"{ratio:.2f}",
        class_="name",
        text_anchor="middle",
    )
    box = element(
        "rect",
        title(words),
        x=x + 0.5,
        y=y + 0.5,
        width=wide - 1,
        height=SQUARE_H - 1,
        class_="host",
        style=f"--heat:{heat:.0%}",
        opacity=0.8,
    )
    return box + shown


def profile(figures: SweepFigures, metric: str) -> str:
    """Return for each policy in how many scenarios it is within a factor of the best.

    These are performance profiles (Dolan and Moré, 2002): a line that is high at the
    left is often the best, and one that is high at the right is never bad.
    """
    frame = PlotFrame(56.0, 26.0, WIDTH - 72, 220.0, PROFILE_MOST - 1.0, 1.0)
    marks = [(v, f"{v:.0%}") for v in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts = [
        text(56, 14, f"scenarios whose {METRICS[metric]} is within", class_="label"),
        frame.grid(marks),
    ]
    for tenth in range(10, int(PROFILE_MOST * 10) + 1, 5):
        factor = tenth / 10
        anchor = "middle" if factor < PROFILE_MOST else "end"
        parts.append(
            text(
                frame.x(factor - 1.0),
                261,
                f"{factor:g} of the best",
                class_="tick",
                text_anchor=anchor,
            )
        )
    for place, column in enumerate(figures.columns):
        ratios = [
            line.values[metric][column] / max(min(line.values[metric].values()), 1e-9)
            for line in figures.lines
        ]
        points: list[tuple[float, float]] = []
        for step in range(PROFILE_STEPS + 1):
            factor = (PROFILE_MOST - 1.0) * step / PROFILE_STEPS
            within = sum(ratio <= 1.0 + factor + 1e-9 for ratio in ratios)
            points.append((factor, within / len(ratios)))
        parts.append(curve(frame, points, place, column))
    return picture(WIDTH, 272, "".join(parts), f"profiles of {METRICS[metric]}")
