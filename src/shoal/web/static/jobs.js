// The table of jobs, with a filter.

import { command } from "./cli.js";
import { path } from "./compare.js";
import { bar, count, ENDED, h, keyed, setSince, setText } from "./dom.js";
import { go } from "./main.js";

const KINDS = {
  all: () => true,
  active: (job) => !ENDED.has(job.state),
  ended: (job) => ENDED.has(job.state),
  failed: (job) => job.state === "failed" || job.state === "unknown",
};

export function jobsTable() {
  let jobs = [];
  let kind = "all";
  let known = false;
  const filter = h("input", { type: "search", placeholder: "Filter by id, name, state or node", "aria-label": "Filter jobs; the key / leads here" });
  const rows = h("tbody");
  const note = h("p", { class: "empty" });
  const kinds = Object.keys(KINDS).map((name) => h("button", { type: "button", class: "chip", "aria-pressed": String(name === kind), onclick: () => pick(name) }, name));
  const table = h("table", { class: "jobs" },
    h("caption", { class: "unseen" }, "Jobs, the latest first"),
    h("thead", {}, h("tr", {}, ["Job", "Name", "State", "Progress", "Where", "Age", "Why", "Compare"].map((name) => h("th", { scope: "col" }, name)))),
    rows);
  const none = h("div", { class: "empty", hidden: true },
    h("p", {}, "No job yet. This runs the first one:"),
    command("shoal run -- python3 -c 'print(\"hello\")'", "run a first job"),
    h("p", {}, h("a", { href: "/submit" }, "Or write one here")));

  const picked = new Set(); // Jobs to compare.
  const compare = h("button", { type: "button", class: "act", hidden: true, onclick: () => go(path([...picked])) });
  rows.addEventListener("change", (event) => {
    const id = event.target.closest("tr").dataset.key;
    if (event.target.checked) picked.add(id);
    else picked.delete(id);
    compare.hidden = picked.size < 2;
    setText(compare, `Compare ${picked.size} jobs`);
  });

  function pick(name) {
    kind = name;
    for (const button of kinds) button.setAttribute("aria-pressed", String(button.textContent === name));
    draw();
  }

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = jobs.filter((job) => KINDS[kind](job) && (!wanted || textOf(job).includes(wanted)));
    keyed(rows, shown, (job) => job.id, createRow, updateRow);
    none.hidden = !known || jobs.length > 0;
    table.hidden = shown.length === 0;
    tools.hidden = jobs.length === 0;
    note.hidden = jobs.length === 0 || shown.length > 0;
    setText(note, `None of ${count(jobs.length, "job")} is like that.`);
  }

  filter.addEventListener("input", draw);
  const tools = h("div", { class: "tools", hidden: true }, filter, h("div", { class: "chips", role: "group", "aria-label": "Which jobs" }, kinds), compare);
  return {
    element: h("div", {}, tools, h("div", { class: "wide" }, table), note, none),
    set(found) { jobs = found; known = true; draw(); },
  };
}

function textOf(job) {
  return [job.id, job.name, job.state, ...job.nodes.map((node) => node.petname)].join(" ").toLowerCase();
}

function createRow(job) {
  const cell = (label, ...children) => h("td", { "data-label": label }, ...children);
  return h("tr", { "data-href": `/jobs/${job.id}` },
    cell("Job", h("a", { class: "id", href: `/jobs/${job.id}` }, job.id)),
    cell("Name", h("span", { class: "clip" })),
    cell("State", h("span", { class: "pill" })),
    cell("Progress"),
    cell("Where"),
    cell("Age", h("time")),
    cell("Why", h("span", { class: "clip long" })),
    cell("Compare", h("input", { type: "checkbox", "aria-label": `Compare ${job.name}` })));
}

function updateRow(row, job) {
  const [, name, state, progress, where, age, why] = row.cells;
  setText(name.firstChild, job.name);
  setText(state.firstChild, job.state);
  state.firstChild.className = `pill ${job.state}`;
  const told = `${job.fraction}/${JSON.stringify(job.tasks)}/${job.state}`;
  if (progress.dataset.told !== told) {
    progress.dataset.told = told;
    progress.replaceChildren(progressOf(job));
  }
  setText(where, placesOf(job));
  setSince(age.firstChild, job.submitted_s);
  setText(why.firstChild, whyOf(job));
  why.firstChild.title = why.firstChild.textContent;
  name.firstChild.title = name.firstChild.textContent;
  why.classList.toggle("blank", !whyOf(job));
  where.classList.toggle("blank", !placesOf(job));
}

export function totalOf(job) {
  return Object.values(job.tasks).reduce((a, b) => a + b, 0);
}

export function progressOf(job) {
  const total = totalOf(job);
  if (total === 1 && job.fraction !== null && !ENDED.has(job.state)) {
    const text = `${Math.round(100 * job.fraction)} %`;
    return h("span", { class: "progress" }, bar(job.fraction, 1, { label: text }), h("span", { class: "number" }, text));
  }
  if (total === 1) return h("span", { class: "number" }, "1 task");
  const text = `${job.tasks.done}/${total}`;
  return h("span", { class: "progress" }, bar(job.tasks.done, total, { label: `${text} tasks done` }), h("span", { class: "number" }, text));
}

export function placesOf(job) {
  const names = job.nodes.map((node) => node.petname);
  return names.length > 2 ? `${names[0]} +${names.length - 1}` : names.join(", ");
}

export function whyOf(job) {
  if (job.reason) return job.reason;
  return job.exit_code ? `exit code ${job.exit_code}` : "";
}
