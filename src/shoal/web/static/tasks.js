// The tasks of a job: each row opens its task. A job of thousands shows a few hundred,
// and all of them if somebody asks.

import { ask } from "./api.js";
import { shortTask } from "./curves.js";
import { amount, bar, ENDED, h, keyed, pill, setText } from "./dom.js";
import { failed } from "./main.js";

const ASKED_MAX = 10000;
const DRAWN_MAX = 200;
const KINDS = {
  all: () => true,
  running: (task) => task.state === "running",
  waiting: (task) => task.state === "waiting" || task.state === "blocked",
  failed: (task) => task.state === "failed" || task.state === "unknown",
  done: (task) => task.state === "done",
};
const COLUMNS = ["Task", "State", "Progress", "Where", "Tries", "Figures", "Why"];

export function taskPath(job, task) {
  return `/jobs/${job}?task=${encodeURIComponent(task)}`;
}

export function taskLink(job, task, text) {
  return h("a", { href: task ? taskPath(job, task) : `/jobs/${job}`, "data-key": `task-${task}` }, text);
}

export function tasksTable(job, onAll) {
  const rows = h("tbody");
  const note = h("p", { class: "hint", hidden: true });
  const more = h("button", { type: "button", class: "act", hidden: true }, "Load all tasks");
  const filter = h("input", { type: "search", placeholder: "Filter by name, node or reason", "aria-label": "Filter tasks" });
  const kinds = Object.keys(KINDS).map((name) => h("button", { type: "button", class: "chip", "aria-pressed": String(name === "all"), onclick: () => pick(name) }, name));
  const tools = h("div", { class: "tools", hidden: true }, filter, h("div", { class: "chips", role: "group", "aria-label": "Which tasks" }, kinds));
  let known = new Map();
  let total = 0;
  let kind = "all";

  filter.addEventListener("input", draw);
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const told = await ask(`/api/jobs/${job}?tasks=${ASKED_MAX}`);
      for (const task of told.tasks) known.set(task.id, task);
      onAll(told.tasks);
      draw();
    } catch (error) {
      failed(error);
    }
    more.disabled = false;
  });

  function pick(name) {
    kind = name;
    for (const button of kinds) button.setAttribute("aria-pressed", String(button.textContent === name));
    draw();
  }

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const found = [...known.values()].filter((task) => KINDS[kind](task) && (!wanted || textOf(task).includes(wanted)));
    keyed(rows, found.slice(0, DRAWN_MAX), (task) => task.id, create, update);
    tools.hidden = total < 9;
    more.hidden = known.size >= total;
    const parts = [
      found.length > DRAWN_MAX ? `the first ${DRAWN_MAX} of ${found.length} that match` : "",
      known.size < total ? `${known.size} of ${total} tasks are loaded` : "",
    ].filter(Boolean);
    note.hidden = !parts.length;
    setText(note, parts.join("; "));
  }

  function create(task) {
    return h("tr", { "data-href": taskPath(job, task.id) }, COLUMNS.map((name) => h("td", { "data-label": name }, name === "Task" ? h("a", { class: "id", href: taskPath(job, task.id) }) : null)));
  }

  return {
    element: h("div", {}, tools, h("div", { class: "wide" }, h("table", { class: "tasks" },
      h("caption", { class: "unseen" }, "Tasks of this job"),
      h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
      rows)), h("div", { class: "row more-row" }, note, more)),
    set(tasks, all) {
      if (known.size <= tasks.length) known = new Map();
      for (const task of tasks) known.set(task.id, task);
      total = all;
      draw();
    },
  };
}

function textOf(task) {
  return [shortTask(task.id), task.id, task.reason, ...task.nodes.map((node) => node.petname)].join(" ").toLowerCase();
}

function update(row, task) {
  const [name, state, progress, where, tries, figures, why] = row.cells;
  setText(name.firstChild, shortTask(task.id));
  if (state.textContent !== task.state) state.replaceChildren(pill(task.state));
  const shown = task.fraction !== null && !ENDED.has(task.state);
  const text = shown ? `${Math.round(100 * task.fraction)} %` : "";
  if (progress.textContent !== text) progress.replaceChildren(...(shown ? [h("span", { class: "progress" }, bar(task.fraction, 1, { label: text }), h("span", { class: "number" }, text))] : []));
  setText(where, task.nodes.map((node) => node.petname).join(", "));
  setText(tries, String(task.attempts));
  setText(figures, Object.entries(task.metrics).slice(0, 3).map(([key, value]) => `${key} ${amount(value)}`).join("  "));
  setText(why, task.reason || (task.exit_code ? `exit code ${task.exit_code}` : ""));
  for (const cell of row.cells) cell.classList.toggle("blank", !cell.textContent);
}
