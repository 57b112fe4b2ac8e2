"""The report as one HTML file with tables and charts; it fetches nothing."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from shoal.lab.report import gantt, heat
from shoal.lab.report.charts import legend, marks_of, over_time, spreading
from shoal.lab.report.formatting import (
    GOSSIP_ROWS,
    ROWS,
    columns,
    count,
    hosts_in_words,
    service_rows,
    share,
    size,
    unended,
)
from shoal.lab.report.svg import element, with_key
from shoal.lab.report.table import heading

if TYPE_CHECKING:
    from shoal.lab.datacentre.comparison import Comparison, ScenarioRun
    from shoal.lab.datacentre.results import RunResult
    from shoal.lab.report.formatting import Row

STYLE: Final = """
:root{color-scheme:light dark;--paper:#fbfbf9;--card:#fff;--ink:#1d2430;--soft:#5b6472;
--line:#e3e5e8;--stripe:#f4f5f6;--cold:#d5dae1;--warm:#f2a93b;--hot:#c9302c;
--event:#b3261e;--hue0:#2f6fd0;--hue1:#d1690f;--hue2:#1b8a62;--hue3:#9645b0;
--hue4:#bf3a5c;--hue5:#0f8aa3;--hue6:#7a7416;--hue7:#6a6f78}
@media(prefers-color-scheme:dark){:root{--paper:#14171c;--card:#1b2027;--ink:#e8eaee;
--soft:#9aa4b2;--line:#2c333d;--stripe:#20262e;--cold:#3a434f;--warm:#e59a2e;
--hot:#ff5d52;--event:#ff8a80;--hue0:#6ea3f5;--hue1:#f09a4a;--hue2:#4cc395;
--hue3:#c58be0;--hue4:#f07f9c;--hue5:#4fc3d9;--hue6:#c3bc4d;--hue7:#a3a9b3}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1060px;margin:0 auto;padding:36px 24px 80px}
h1{font-size:27px;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:18px;margin:40px 0 10px}h3{font-size:15px;margin:26px 0 6px}
p{margin:6px 0}.sub,.note{color:var(--soft)}.note{font-size:13px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:16px 18px;margin:12px 0;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 12px;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0;color:var(--soft);
font-weight:400}
thead th{border-bottom:1px solid var(--line);font-weight:600;color:var(--ink)}
tbody tr+tr td{border-top:1px solid var(--line)}td.best{font-weight:650}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 8px;font-size:13px}
.key{display:inline-flex;align-items:center;gap:6px}
.swatch{width:14px;height:4px;border-radius:2px;background:currentColor}
.box{height:11px;width:11px;border-radius:3px}
svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
fill:var(--soft)}
svg .label{font-size:12px;fill:var(--ink)}svg .mark{fill:var(--event)}
svg .name{fill:var(--ink);font-size:11px}
.grid{stroke:var(--line)}.axis{stroke:var(--soft);stroke-width:1}
.event{stroke:var(--event);stroke-width:1;stroke-dasharray:3 3}
.bound{stroke:var(--soft);stroke-width:1;stroke-dasharray:5 4}
.line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}
.stripe{fill:var(--stripe)}
.bar.cut{opacity:.45;stroke:var(--event);stroke-width:.8}
.switch{fill:var(--card);stroke:var(--soft)}
.cable,.host{--tint:color-mix(in oklab,var(--hot) max(0%,calc(var(--heat)*2 - 100%)),
color-mix(in oklab,var(--warm) min(100%,calc(var(--heat)*2)),var(--cold)))}
.cable{stroke:var(--tint)}.host{fill:var(--tint)}
.scale{display:inline-block;width:120px;height:9px;border-radius:5px;
background:linear-gradient(90deg in oklab,var(--cold),var(--warm),var(--hot))}
.tabs{display:flex;flex-wrap:wrap;gap:6px;margin:6px 0 0}
.tabs button{font:inherit;font-size:14px;padding:5px 14px;border-radius:999px;
border:1px solid var(--line);background:var(--card);color:var(--ink);cursor:pointer}
.tabs button[aria-selected=true]{background:var(--ink);color:var(--paper);
border-color:var(--ink)}
footer{margin-top:44px;color:var(--soft);font-size:13px}
code{font:13px ui-monospace,SFMono-Regular,Menlo,monospace}
""" + "".join(
    f".hue{n}{{color:var(--hue{n})}}.fill{n}{{fill:var(--hue{n})}}" for n in range(8)
)

SCRIPT: Final = """
const tabs=[...document.querySelectorAll('.tabs button')];
const show=n=>{tabs.forEach((t,i)=>t.setAttribute('aria-selected',i===n));
document.querySelectorAll('.run').forEach((r,i)=>{r.hidden=i!==n})};
tabs.forEach((t,i)=>t.addEventListener('click',()=>show(i)));
"""


OVERLAYS: Final = {
    "flood": "told to all of the leaf, and to one host of every other leaf",
    "random": "told to a few drawn neighbours, several times over",
    "mst": "told along a minimum spanning tree",
    "nearest": "told to the nearest hosts, and along a spanning tree",
}


PALE: Final = element("span", "pale with a rim: stopped or lost", class_="key sub")


def page(comparison: Comparison) -> str:
    """Return the whole page."""
    settings = comparison.settings
    results = [run.result for run in comparison.runs]
    names = columns(results)
    marks = marks_of(settings.planned_faults)
    many = len(results) > 1
    body = [
        element("h1", escape(settings.name)),
        element("p", escape(heading(comparison)), class_="sub"),
        element("p", escape(_about(comparison)), class_="sub"),
        element("h2", f"{_compared(results)}, side by side" if many else "In figures"),
        _card(_table(names, results, (*ROWS, *service_rows(results)))),
        *(element("p", escape(line), class_="note") for line in unended(results)),
        element("h2", "Over time"),
        _card((legend(names) if many else "") + over_time(results, marks)),
        element("h2", "How news of room spreads"),
        _card(
            (legend(names) if many else "") + spreading(results, settings.interval_s)
        ),
        _overlay_notes(results),
        _card(_table(names, results, GOSSIP_ROWS)),
        element("h2", "Run by run" if many else "The run"),
        _tabs(names) if many else "",
        *(_run(comparison, run, place) for place, run in enumerate(comparison.runs)),
        _footer(comparison),
    ]
    return document(settings.name, "".join(body), SCRIPT if many else "")


def document(name: str, body: str, script: str = "") -> str:
    """Return a whole page with the style of all reports."""
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        + element("title", escape(f"{name} - shoal sim"))
        + element("style", STYLE)
    )
    if script:
        script = element("script", script)
    return (
        '<!doctype html><html lang="en">'
        + element("head", head)
        + element("body", element("main", body) + script)
        + "</html>\n"
    )


def _compared(results: list[RunResult]) -> str:
    several = len(dict.fromkeys(result.policy for result in results)) > 1
    return "Policies" if several else "Overlays"


def _about(comparison: Comparison) -> str:
    settings = comparison.settings
    kinds = ", ".join(kind.name for kind in settings.kinds)
    told = hosts_in_words(settings.hosts)
    return f"{settings.jobs} jobs ({kinds}) · {told} · seed {settings.seed}"


def _card(content: str) -> str:
    return element("div", content, class_="card")


def _table(names: list[str], results: list[RunResult], rows: tuple[Row, ...]) -> str:
    head = "<th></th>" + "".join(element("th", escape(name)) for name in names)
    lines = [
        element(
            "tr",
            element("td", escape(name))
            + "".join(element("td", escape(told(result))) for result in results),
        )
        for name, told in rows
    ]
    return element(
        "table",
        element("thead", element("tr", head)) + element("tbody", "".join(lines)),
    )


def _overlay_notes(results: list[RunResult]) -> str:
    used = dict.fromkeys(result.overlay for result in results)
    notes = [
        element("p", f"<b>{name}</b>: {OVERLAYS[name]}.", class_="note")
        for name in used
    ]
    return "".join(notes)


def _tabs(names: list[str]) -> str:
    buttons = [
        element(
            "button",
            escape(name),
            type="button",
            aria_selected="true" if place == 0 else "false",
        )
        for place, name in enumerate(names)
    ]
    return element("div", "".join(buttons), class_="tabs")


def _run(comparison: Comparison, run: ScenarioRun, place: int) -> str:
    fabric, settings, result = comparison.fabric, comparison.settings, run.result
    devices = settings.hosts.devices_max
    scale = 'idle <i class="scale"></i> always busy'
    many = gantt.shown_of(len(fabric.hosts), devices)
    notes = " ".join((heat.shown_of(fabric), many))
    parts = [
        element("h3", "The fabric, and how busy links and hosts were"),
        element("p", scale, class_="note"),
        _card(heat.heat(fabric, result)),
        element("h3", "Jobs on devices"),
        legend([kind.name for kind in settings.kinds], "box ", PALE),
        _card(_gantt(comparison, run)),
        element("p", escape(notes), class_="note") if notes.strip() else "",
        element("p", escape(_moved(result)), class_="note"),
    ]
    hidden = " hidden" if place else ""
    return f'<section class="run"{hidden}>{"".join(parts)}</section>'


def _gantt(comparison: Comparison, run: ScenarioRun) -> str:
    fabric, settings = comparison.fabric, comparison.settings
    colours = {kind.name: n for n, kind in enumerate(settings.kinds)}
    return gantt.gantt(
        run.bars,
        {
            drawn_job.job: colours[drawn_job.kind.name]
            for drawn_job in comparison.drawn.jobs
        },
        [fabric.nodes[host].name for host in fabric.hosts],
        settings.hosts.devices_max,
        run.result.makespan_s,
        marks_of(settings.planned_faults),
    )


def pictures(comparison: Comparison) -> dict[str, str]:
    """Return every picture as a file of its own, by name."""
    results = [run.result for run in comparison.runs]
    marks = marks_of(comparison.settings.planned_faults)
    interval_s = comparison.settings.interval_s
    names = columns(results)
    kinds = [kind.name for kind in comparison.settings.kinds]
    found = {
        "over-time": with_key(over_time(results, marks), names),
        "gossip": with_key(spreading(results, interval_s), names),
    }
    for name, run in zip(names, comparison.runs, strict=True):
        word = name.replace(", ", "-")
        found[f"fabric-{word}"] = heat.heat(comparison.fabric, run.result)
        found[f"jobs-{word}"] = with_key(_gantt(comparison, run), kinds)
    return {
        f"{name}.svg": drawn.replace(">", f"><style>{STYLE}</style>", 1)
        for name, drawn in found.items()
    }


def _moved(result: RunResult) -> str:
    top = sorted(result.by_message.items(), key=lambda item: (-item[1], item[0]))[:6]
    said = ", ".join(f"{count(number)} {name}" for name, number in top)
    return (
        f"{size(result.moved_bytes)} moved between hosts, "
        f"{share(result.cross_leaf_share)} of it across leaves. Messages: {said}."
    )


def _footer(comparison: Comparison) -> str:
    events = sum(run.result.events for run in comparison.runs)
    hashes = ", ".join(run.result.history[:8] for run in comparison.runs)
    return element(
        "footer",
        f"{count(events)} events of the machines that run on live nodes. The same seed "
        f"gives the same history: <code>{escape(hashes)}</code>",
    )
