// What a job is made of: its steps as a graph of what needs what, and for the chosen one
// its command, environment and needs.

import { command } from "./cli.js";
import { count, facts, h, onWidth, rebuild, s, span } from "./dom.js";
import { commandLine } from "./text.js";

const BOX = { width: 148, height: 44 };
const GAP = { x: 44, y: 14 };
const DRAWN_MAX = 40;
const LETTER = 7;
const HIDES = /TOKEN|SECRET|PASSW|CREDENTIAL|_KEY$|^KEY$|API_?KEY/i;
const WORST = ["failed", "unknown", "cancelled", "running", "waiting", "blocked", "done"];

// Return the column of each step: one further than the farthest that it needs.
export function columnsOf(steps) {
  const byName = new Map(steps.map((step) => [step.name, step]));
  const columns = new Map();
  const column = (step, above) => {
    if (columns.has(step.name)) return columns.get(step.name);
    if (above.has(step.name)) return 0; // No job has a circle; a liar may.
    const before = step.after.map((name) => byName.get(name)).filter(Boolean);
    const found = before.length ? 1 + Math.max(...before.map((each) => column(each, new Set([...above, step.name])))) : 0;
    columns.set(step.name, found);
    return found;
  };
  for (const step of steps) column(step, new Set());
  return columns;
}

export function stateOf(step) {
  return WORST.find((state) => step.counts[state]) ?? "done";
}

export function stepsPanel() {
  const drawing = h("div", { class: "drawing wide" });
  const details = h("div", { class: "step" });
  let steps = [];
  let chosen = "";
  let told = "";
  const element = h("div", { class: "steps" }, drawing, details);

  function draw() {
    const width = Math.floor(drawing.clientWidth);
    drawing.hidden = steps.length < 2 || steps.every((step) => !step.after.length);
    if (width && !drawing.hidden) rebuild(drawing, graph(steps.slice(0, DRAWN_MAX), chosen, pick));
    const step = steps.find((each) => each.name === chosen) ?? steps[0];
    if (step) rebuild(details, steps.length > 1 ? h("h3", {}, step.name) : null, describe(step));
  }

  function pick(name) {
    chosen = name;
    draw();
  }

  onWidth(drawing, draw);
  return {
    element,
    set(found) {
      const next = JSON.stringify(found);
      if (next === told) return;
      told = next;
      steps = found;
      if (!steps.some((step) => step.name === chosen)) chosen = steps[0]?.name ?? "";
      drawing.hidden = false;
      draw();
    },
  };
}

function graph(steps, chosen, pick) {
  const columns = columnsOf(steps);
  const rows = new Map();
  const at = new Map();
  for (const step of steps) {
    const column = columns.get(step.name);
    const row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    at.set(step.name, { x: 2 + column * (BOX.width + GAP.x), y: 2 + row * (BOX.height + GAP.y) });
  }
  const width = 4 + (Math.max(...columns.values()) + 1) * (BOX.width + GAP.x) - GAP.x;
  const height = 4 + Math.max(...rows.values()) * (BOX.height + GAP.y) - GAP.y;
  const links = steps.flatMap((step) => step.after.filter((name) => at.has(name)).map((name) => {
    const [a, b] = [at.get(name), at.get(step.name)];
    const [x1, y1, x2, y2] = [a.x + BOX.width, a.y + BOX.height / 2, b.x, b.y + BOX.height / 2];
    return s("path", { class: "need", d: `M${x1} ${y1}C${x1 + GAP.x / 2} ${y1} ${x2 - GAP.x / 2} ${y2} ${x2} ${y2}` });
  }));
  return s("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${count(steps.length, "step")} and what each needs` }, links, steps.map((step) => box(step, at.get(step.name), step.name === chosen, pick)));
}

function box(step, { x, y }, isChosen, pick) {
  const state = stateOf(step);
  const total = Object.values(step.counts).reduce((a, b) => a + b, 0);
  const text = total === 1 ? state : `${step.counts.done}/${total} done`;
  const most = Math.floor((BOX.width - 20) / LETTER);
  const name = step.name.length > most ? `${step.name.slice(0, most - 1)}…` : step.name;
  const element = s("g", { class: `box ${state}${isChosen ? " chosen" : ""}`, tabindex: "0", role: "button", "aria-pressed": String(isChosen), "data-key": `step-${step.name}`, "aria-label": `${step.name}: ${text}${step.after.length ? `, needs ${step.after.join(", ")}` : ""}` },
    s("rect", { x, y, width: BOX.width, height: BOX.height, rx: 7 }),
    s("text", { class: "name", x: x + 12, y: y + 18 }, name),
    s("text", { class: "quiet", x: x + 12, y: y + 34 }, text));
  element.addEventListener("click", () => pick(step.name));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pick(step.name);
  });
  return element;
}

function describe(step) {
  const words = step.recipe ? null : commandLine(step.argv);
  const env = Object.entries(step.env).sort();
  const total = Object.values(step.counts).reduce((a, b) => a + b, 0);
  const whose = total > 1 ? h("span", { class: "soft" }, `the first of ${total} tasks`) : null;
  return h("div", { class: "described" },
    words ? h("p", { class: "run-line" }, command(words, "what it runs"), whose) : h("p", {}, "recipe ", h("code", {}, step.recipe)),
    step.setup.length ? h("p", {}, "First on each worker ", command(commandLine(step.setup), "the set-up")) : null,
    facts(
      ["Each task needs", step.needs],
      step.after.length ? ["After", step.after.join(", ")] : null,
      step.gang_min > 1 ? ["Together", `at least ${step.gang_min}`] : null,
      step.image ? ["Image", step.image] : null,
      step.python ? ["Python", step.python] : null,
      step.mounts.length ? ["Mounts", step.mounts.join(", ")] : null,
      step.caches.length ? ["Caches", step.caches.join(", ")] : null,
      step.time_limit_s ? ["Time limit", span(step.time_limit_s)] : null,
      ["Network", step.network ? "yes" : "no"],
      step.outputs.length ? ["Keeps", step.outputs.join(", ")] : null,
      step.secrets.length ? ["Secrets", step.secrets.join(", ")] : null),
    env.length ? h("details", { class: "more", open: env.length < 9 }, h("summary", {}, count(env.length, "environment variable")),
      h("table", { class: "env" }, h("tbody", {}, env.map(([name, value]) => h("tr", {}, h("th", { scope: "row", class: "id" }, name), h("td", { class: "id" }, HIDES.test(name) ? hidden(name, value) : value)))))) : null);
}

function hidden(name, value) {
  const button = h("button", { type: "button", class: "mini", "aria-label": `Show ${name}` }, "show");
  const element = h("span", {}, "••••• ", button);
  button.addEventListener("click", () => element.replaceChildren(...h("span", {}, value).childNodes));
  return element;
}
