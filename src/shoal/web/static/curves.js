// The figures that tasks tell, as lines: a chart for each figure, a line for each task.

import { amount, h, rebuild, s, span } from "./dom.js";

const SIZE = { width: 360, height: 168 };
const MARGIN = { left: 46, right: 10, top: 10, bottom: 22 };
const POINTS_MAX = 1200;
const LINES_MAX = 24;
const NAMED_MAX = 8;
const CHARTS_MAX = 6;
const LOG_FROM = 100; // A figure that shrinks so much is shown by its logarithm.
const COLOURS = 8;
const FIRST = ["loss", "validation_loss", "validation_accuracy", "accuracy"];

export function curvesPanel(parent) {
  const figures = new Map(); // by name: by task: points
  const began = new Map(); // When each task told its first figure.
  const more = h("details", { class: "more", hidden: true }, h("summary"), h("div", { class: "curves" }));
  let waiting = false;
  const draw = () => {
    waiting = false;
    const tasks = [...new Set([...figures.values()].flatMap((lines) => [...lines.keys()]))].sort(byNumber);
    const names = [...figures.keys()].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const found = names.flatMap((name) => byGroup(name, figures.get(name)));
    const moving = found.filter(([, lines]) => [...lines.values()].some((points) => points.length > 1));
    const still = found.filter((each) => !moving.includes(each));
    const charts = moving.map(([title, lines]) => chart(title, lines, tasks));
    more.querySelector("summary").textContent = charts.length > CHARTS_MAX ? `${charts.length - CHARTS_MAX} more` : "";
    more.querySelector(".curves").replaceChildren(...charts.slice(CHARTS_MAX));
    more.hidden = charts.length <= CHARTS_MAX;
    rebuild(parent, h("div", { class: "curves" }, charts.slice(0, CHARTS_MAX)), more, legend(tasks), still.length ? facts(still) : null);
  };
  return {
    reset() { figures.clear(); began.clear(); },
    add(told) {
      for (const [task, curves] of Object.entries(told)) {
        for (const [name, points] of Object.entries(curves)) {
          const lines = figures.get(name) ?? new Map();
          figures.set(name, lines);
          if (!began.has(task)) began.set(task, points[0][0]);
          const fresh = points.map(([at, step, value]) => ({ after: at - began.get(task), step, value }));
          const known = [...(lines.get(task) ?? []), ...fresh.filter((point) => point.value !== null)];
          lines.set(task, known.length > POINTS_MAX ? known.filter((_, place) => place % 2 === 0 || place === known.length - 1) : known);
        }
      }
      if (!waiting) { waiting = true; requestAnimationFrame(draw); }
    },
    get size() { return figures.size; },
  };
}

function rank(name) {
  const place = FIRST.indexOf(name);
  return place < 0 ? FIRST.length : place;
}

// A figure that two kinds of tasks tell means two things: each has a chart.
function byGroup(name, lines) {
  const groups = new Map();
  for (const [task, points] of lines) {
    const group = task.split(".").slice(1, -1).join(".");
    groups.set(group, (groups.get(group) ?? new Map()).set(task, points));
  }
  const title = name.replaceAll("_", " ");
  return [...groups].sort().map(([group, found]) => [groups.size > 1 ? `${title} · ${group}` : title, found]);
}

function facts(still) {
  return h("dl", { class: "facts still" }, still.map(([title, lines]) => h("div", {}, h("dt", {}, title), h("dd", {}, [...new Set([...lines.values()].map((points) => amount(points.at(-1)?.value)))].slice(0, NAMED_MAX).join(", ")))));
}

function byNumber(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

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

function chart(name, lines, tasks) {
  const shown = tasks.filter((task) => lines.has(task)).slice(0, LINES_MAX);
  const all = shown.flatMap((task) => lines.get(task));
  const bySteps = all.length > 0 && all.every((point) => point.step !== null);
  const across = (point) => (bySteps ? point.step : point.after);
  const xs = extent(all.map(across));
  const ys = extent(all.map((point) => point.value));
  const x = (value) => MARGIN.left + ((value - xs[0]) / (xs[1] - xs[0])) * (SIZE.width - MARGIN.left - MARGIN.right);
  const isLog = ys[0] > 0 && ys[1] / ys[0] > LOG_FROM;
  const scale = isLog ? Math.log10 : (value) => value;
  const y = (value) => SIZE.height - MARGIN.bottom - ((scale(value) - scale(ys[0])) / (scale(ys[1]) - scale(ys[0]))) * (SIZE.height - MARGIN.top - MARGIN.bottom);
  const write = bySteps ? (value) => amount(Math.round(value)) : (value) => span(value);
  const ticks = [ys[0], isLog ? Math.sqrt(ys[0] * ys[1]) : (ys[0] + ys[1]) / 2, ys[1]];
  const last = shown.map((task) => lines.get(task).at(-1)?.value).filter((value) => value !== undefined);
  const latest = last.length === 1 ? amount(last[0]) : last.length ? `${amount(Math.min(...last))} … ${amount(Math.max(...last))}` : "";
  const readout = h("span", { class: "latest" }, latest);
  const cursor = s("g", { class: "cursor" });
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": `${name}: ${latest}` },
    ticks.map((value) => [
      s("line", { class: "grid", x1: MARGIN.left, x2: SIZE.width - MARGIN.right, y1: y(value), y2: y(value) }),
      s("text", { class: "axis", x: MARGIN.left - 6, y: y(value) + 3.5, "text-anchor": "end" }, amount(value)),
    ]),
    s("text", { class: "axis", x: MARGIN.left, y: SIZE.height - 6 }, bySteps ? `step ${write(xs[0])}` : write(0)),
    s("text", { class: "axis", x: SIZE.width - MARGIN.right, y: SIZE.height - 6, "text-anchor": "end" }, write(bySteps ? xs[1] : xs[1] - xs[0])),
    shown.map((task) => {
      const points = lines.get(task);
      const kind = `line c${tasks.indexOf(task) % COLOURS}`;
      if (points.length === 1) return s("circle", { class: kind, cx: x(across(points[0])), cy: y(points[0].value), r: 2.5 });
      return s("polyline", { class: kind, points: points.map((point) => `${x(across(point)).toFixed(1)},${y(point.value).toFixed(1)}`).join(" ") });
    }),
    cursor);
  svg.addEventListener("pointermove", (event) => {
    const place = ((event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth) * SIZE.width;
    const found = shown.map((task) => nearest(lines.get(task), (point) => Math.abs(x(across(point)) - place))).filter(Boolean);
    if (!found.length) return;
    cursor.replaceChildren(...found.map((point) => s("circle", { cx: x(across(point)), cy: y(point.value), r: 3 })));
    readout.textContent = `${bySteps ? "step " : ""}${write(across(found[0]))}: ${found.slice(0, 4).map((point) => amount(point.value)).join(", ")}`;
  });
  svg.addEventListener("pointerleave", () => { cursor.replaceChildren(); readout.textContent = latest; });
  return h("figure", { class: "curve" }, h("figcaption", {}, h("span", { class: "figure" }, name, isLog ? h("small", {}, " log") : null), readout), svg);
}

function nearest(points, distance) {
  return points.reduce((best, point) => (best === null || distance(point) < distance(best) ? point : best), null);
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  if (!Number.isFinite(low)) return [0, 1];
  if (low === high) return [low - (Math.abs(low) || 1) * 0.05, high + (Math.abs(high) || 1) * 0.05];
  return [low, high];
}

function legend(tasks) {
  if (tasks.length < 2) return null;
  const more = tasks.length - NAMED_MAX;
  return h("ul", { class: "legend" },
    tasks.slice(0, NAMED_MAX).map((task, place) => h("li", {}, h("span", { class: `key line c${place % COLOURS}`, "aria-hidden": "true" }), shortTask(task))),
    more > 0 ? h("li", {}, `and ${more} more`) : null);
}
