// The figures that tasks tell, as lines: a chart for each figure, a line for each task.
// Whoever clicks a name in the legend sees its lines alone; a second click shows all.

import { chart, colourOf } from "./chart.js";
import { amount, facts, h, keyed, setText } from "./dom.js";

const POINTS_MAX = 1200;
const CHARTS_MAX = 6;
const NAMED_MAX = 60;
const STILL_MAX = 8;
const FIRST = ["loss", "validation_loss", "validation_accuracy", "accuracy"];

// `nameOf` says what a line is called, by its key: a task. A figure that two kinds of
// tasks tell has a chart for each, unless they are `together`.
export function curvesPanel(parent, nameOf, { together = false } = {}) {
  const figures = new Map(); // by name: by key of a line: points
  const began = new Map(); // When each line began.
  const charts = new Map();
  const settings = { smoothing: 0, shown: null };
  const first = h("div", { class: "curves" });
  const rest = h("div", { class: "curves" });
  const summary = h("summary");
  const more = h("details", { class: "more", hidden: true }, summary, rest);
  const legend = h("ul", { class: "legend picks", role: "group", "aria-label": "Lines: click one to see it alone" });
  const note = h("p", { class: "hint", hidden: true });
  const still = h("div", { class: "still" });
  const slider = h("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: "0", "aria-label": "Smoothing" });
  const all = h("button", { type: "button", class: "mini", hidden: true }, "show all lines");
  let waiting = 0;

  parent.append(first, more, legend, note, still);
  slider.addEventListener("input", () => { settings.smoothing = Number(slider.value); draw(); });
  all.addEventListener("click", () => { settings.shown = null; draw(); });
  const ask = () => { waiting ||= requestAnimationFrame(draw); };

  function pick(key, adds) {
    const shown = settings.shown;
    if (adds && shown) {
      const next = new Set(shown);
      if (!next.delete(key)) next.add(key);
      settings.shown = next.size ? next : null;
    } else settings.shown = shown?.size === 1 && shown.has(key) ? null : new Set([key]);
    draw();
  }

  function draw() {
    waiting = 0;
    const keys = [...new Set([...figures.values()].flatMap((lines) => [...lines.keys()]))].sort(byNumber);
    const colours = new Map(keys.map((key, place) => [key, colourOf(place)]));
    const names = [...figures.keys()].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const found = names.flatMap((name) => (together ? [[titleOf(name), figures.get(name)]] : byGroup(name, figures.get(name))));
    const moving = found.filter(([, lines]) => [...lines.values()].some((points) => points.length > 1));
    const resting = found.filter((each) => !moving.includes(each));
    const rows = moving.map(([title, lines]) => {
      const steps = [...lines.values()].every((points) => points.every((point) => point.step !== null));
      const id = `${title} ${steps}`;
      if (!charts.has(id)) charts.set(id, chart(title, { across: steps ? "step" : "after" }));
      const series = keys.filter((key) => lines.has(key)).map((key) => ({ key, name: nameOf(key), colour: colours.get(key), points: ordered(lines.get(key).map((point) => [steps ? point.step : point.after, point.value])) }));
      charts.get(id).set(series, { ...settings });
      return { id, element: charts.get(id).element };
    });
    keyed(first, rows.slice(0, CHARTS_MAX), (row) => row.id, (row) => row.element, () => {});
    keyed(rest, rows.slice(CHARTS_MAX), (row) => row.id, (row) => row.element, () => {});
    more.hidden = rows.length <= CHARTS_MAX;
    setText(summary, `${rows.length - CHARTS_MAX} more`);
    legend.hidden = keys.length < 2;
    keyed(legend, keys.slice(0, NAMED_MAX), (key) => key, (key) => h("li", {}, h("button", { type: "button", class: "pick", onclick: (event) => pick(key, event.shiftKey || event.ctrlKey || event.metaKey) }, h("i", { class: `key line ${colours.get(key)}` }), h("span", {}))), (item, key) => {
      const button = item.firstChild;
      button.firstChild.className = `key line ${colours.get(key)}`;
      setText(button.lastChild, nameOf(key));
      button.setAttribute("aria-pressed", String(settings.shown?.has(key) ?? false));
      item.classList.toggle("off", Boolean(settings.shown) && !settings.shown.has(key));
    });
    all.hidden = !settings.shown;
    note.hidden = keys.length <= NAMED_MAX;
    setText(note, `and ${keys.length - NAMED_MAX} more lines; shoal metrics --csv has all of them`);
    still.replaceChildren(...(resting.length ? [facts(...resting.map(([title, lines]) => [title, [...new Set([...lines.values()].map((points) => amount(points.at(-1)?.value)))].slice(0, STILL_MAX).join(", ")]))] : []));
  }

  return {
    tools: h("div", { class: "ticks" }, all, h("label", { class: "tick" }, "smooth", slider)),
    reset() { figures.clear(); began.clear(); },
    // Told is by key of a line: by name of a figure: points of time, step and value.
    add(told) {
      for (const [key, curves] of Object.entries(told)) {
        for (const [name, points] of Object.entries(curves)) {
          const lines = figures.get(name) ?? new Map();
          figures.set(name, lines);
          if (!began.has(key)) began.set(key, points[0][0]);
          const fresh = points.map(([at, step, value]) => ({ after: at - began.get(key), step, value }));
          const known = [...(lines.get(key) ?? []), ...fresh.filter((point) => point.value !== null)];
          if (known.length) lines.set(key, known.length > POINTS_MAX ? known.filter((_, place) => place % 2 === 0 || place === known.length - 1) : known);
        }
      }
      ask();
    },
    get size() { return figures.size; },
  };
}

// A task that was run again counts its steps anew: lines go from left to right.
function ordered(points) {
  const isSorted = points.every(([x], place) => place === 0 || points[place - 1][0] <= x);
  return isSorted ? points : [...points].sort(([a], [b]) => a - b);
}

function rank(name) {
  const place = FIRST.indexOf(name);
  return place < 0 ? FIRST.length : place;
}

function titleOf(name) {
  return name.replaceAll("_", " ");
}

function byGroup(name, lines) {
  const groups = new Map();
  for (const [key, points] of lines) {
    const group = key.split(".").slice(1, -1).join(".").replace(/-\d+$/, "");
    groups.set(group, (groups.get(group) ?? new Map()).set(key, points));
  }
  const title = titleOf(name);
  return [...groups].sort().map(([group, found]) => [groups.size > 1 ? `${title} · ${group}` : title, found]);
}

function byNumber(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

// Names of tasks.

const names = new Map(); // What tasks of a sweep are called, by their ids.

export function nameTasks(tasks) {
  for (const task of tasks) {
    const place = placeOf(task.id);
    if (task.label && !/^\d+$/.test(task.label)) names.set(task.id, place.startsWith("main.") ? task.label : `${place} ${task.label}`);
  }
}

export function shortTask(task) {
  return names.get(task) ?? placeOf(task);
}

export function placeOf(task) {
  return task.split(".").slice(1).join(".") || task;
}
