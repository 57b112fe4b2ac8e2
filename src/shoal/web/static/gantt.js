// When each task ran where, from what the node remembers of it.

import { shortTask } from "./curves.js";
import { ENDED, h, now as clockNow, onWidth, rebuild, s, soon, span } from "./dom.js";

const LANE = 20;
const NAME = 132;
const NARROW_NAME = 96;
const NARROW = 560;
const BARS_MAX = 400;
const EVENTS_MAX = 4000;
const AXIS = 22;
const LETTER = 6;

// Return the runs of tasks: task, node, when from and to, and how each ended.
export function runsOf(events) {
  const runs = [];
  const open = new Map();
  const close = (task, at, how) => {
    for (const run of open.get(task) ?? []) Object.assign(run, { to: at, how });
    open.delete(task);
  };
  for (const event of events) {
    if (event.what === "assigned" && event.node) {
      const run = { task: event.task, node: event.node, from: event.at_s, to: null, how: "running" };
      runs.push(run);
      open.set(event.task, [...(open.get(event.task) ?? []), run]);
    } else if (event.task) {
      if (event.what === "returned" || ENDED.has(event.what)) close(event.task, event.at_s, event.what);
    } else if (event.what === "cancelled") {
      for (const task of [...open.keys()]) close(task, event.at_s, "cancelled");
    }
  }
  return runs;
}

// Put runs that overlap below each other; return how many lanes that takes.
export function lanesOf(runs, now) {
  const ends = [];
  for (const run of runs) {
    let lane = ends.findIndex((end) => end <= run.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = run.to ?? now;
    run.lane = lane;
  }
  return ends.length;
}

export function ganttPanel(parent) {
  let events = [];
  let timer = 0;
  const draw = () => {
    const runs = runsOf(events).slice(-BARS_MAX);
    const width = Math.floor(parent.clientWidth);
    if (!runs.length || !width) rebuild(parent, h("p", { class: "empty" }, "No task has been placed since this node started."));
    else rebuild(parent, picture(runs, width));
    clearTimeout(timer);
    if (runs.some((run) => run.to === null)) timer = setTimeout(() => { if (!document.hidden) draw(); }, 2000);
  };
  const drawSoon = soon(draw);
  onWidth(parent, draw);
  return {
    reset() { events = []; },
    add(told) {
      events.push(...told);
      if (events.length > 2 * EVENTS_MAX) events = events.slice(-EVENTS_MAX);
      drawSoon();
    },
    leave() { clearTimeout(timer); },
  };
}

function picture(runs, width) {
  const now = clockNow();
  const name = width < NARROW ? NARROW_NAME : NAME;
  const from = Math.min(...runs.map((run) => run.from));
  const to = Math.max(from + 1, ...runs.map((run) => run.to ?? now));
  const x = (at) => name + ((at - from) / (to - from)) * (width - name - 8);
  const byNode = Map.groupBy ? Map.groupBy(runs, (run) => run.node.id) : grouped(runs);
  const parts = [];
  let y = 4;
  for (const found of [...byNode.values()].sort((a, b) => (a[0].node.petname < b[0].node.petname ? -1 : 1))) {
    const height = lanesOf(found, now) * LANE + 6;
    parts.push(s("line", { class: "grid", x1: 0, x2: width, y1: y + height, y2: y + height }),
      s("text", { class: "row-name", x: 0, y: y + 18 }, cut(found[0].node.petname, name)),
      ...found.map((run) => block(run, x, y + 3, now)));
    y += height + 1;
  }
  return s("svg", { class: "gantt", width, height: y + AXIS, viewBox: `0 0 ${width} ${y + AXIS}`, role: "img", "aria-label": `${runs.length} runs of tasks on ${byNode.size} nodes over ${span(to - from)}` },
    marks(to - from, width < NARROW ? 3 : 6).map((at) => [
      s("line", { class: "grid", x1: x(from + at), x2: x(from + at), y1: 0, y2: y }),
      s("text", { class: "axis", x: x(from + at), y: y + 15, "text-anchor": at ? "middle" : "start" }, at ? span(at) : "0"),
    ]),
    parts);
}

function block(run, x, top, now) {
  const left = x(run.from);
  const wide = Math.max(2, x(run.to ?? now) - left);
  const text = shortTask(run.task);
  const told = `${run.task} on ${run.node.petname}: ${run.how}, ${span((run.to ?? now) - run.from)}`;
  return s("g", { class: `run ${run.how}` },
    s("title", {}, told),
    s("rect", { x: left, y: top + run.lane * LANE, width: wide, height: LANE - 4, rx: 3 }),
    wide > text.length * LETTER + 8 ? s("text", { x: left + 6, y: top + run.lane * LANE + 12 }, text) : null);
}

function marks(length, most) {
  const sizes = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 43200, 86400];
  const size = sizes.find((each) => length / each <= most) ?? Math.ceil(length / most);
  return Array.from({ length: Math.floor((length * 0.96) / size) + 1 }, (_, place) => place * size);
}

function grouped(runs) {
  const found = new Map();
  for (const run of runs) found.set(run.node.id, [...(found.get(run.node.id) ?? []), run]);
  return found;
}

function cut(text, width) {
  const most = Math.floor(width / 7) - 1;
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
