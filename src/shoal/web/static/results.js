// Results of a sweep: a row for each task, a column for each figure, the best first. A
// row opens its task; a heading sorts.

import { shortTask } from "./curves.js";
import { amount, count, h, pill, rebuild } from "./dom.js";
import { taskLink, taskPath } from "./tasks.js";

const COLUMNS_MAX = 8;
const ROWS_MAX = 100;

export function resultsPanel(parent, job) {
  let chosen = null; // A column that the visitor picked.
  let told = { tasks: [], best: null, total: 0 };
  let more = new Map(); // Tasks that were loaded on demand, by id.

  function draw() {
    const latest = new Map([...more, ...told.tasks.map((task) => [task.id, task])]);
    const compared = [...latest.values()].filter((task) => task.label);
    parent.hidden = compared.filter((task) => Object.keys(task.metrics).length).length < 2;
    if (parent.hidden) return;
    const order = chosen ?? told.best ?? { name: "", descending: false };
    const params = varied(compared);
    const figures = [...new Set(compared.flatMap((task) => Object.keys(task.metrics)))].filter((name) => name !== "step");
    figures.sort((a, b) => (b === order.name) - (a === order.name) || (a < b ? -1 : 1));
    const columns = [...params, ...figures].slice(0, COLUMNS_MAX + params.length);
    const rows = [...compared].sort((a, b) => compare(valueOf(a, order.name), valueOf(b, order.name), order.descending));
    const left = rows.length - ROWS_MAX;
    rebuild(parent, h("div", { class: "wide" }, h("table", { class: "results" },
      h("caption", { class: "unseen" }, "Results of this job, the best first"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Task"), h("th", { scope: "col" }, "State"), columns.map((name) => heading(name, order)))),
      h("tbody", {}, rows.slice(0, ROWS_MAX).map((task, place) => h("tr", { class: place === 0 && valueOf(task, order.name) !== null ? "best" : "", "data-href": taskPath(job, task.id) },
        h("th", { scope: "row", class: "id" }, taskLink(job, task.id, shortTask(task.id))),
        h("td", { "data-label": "State" }, pill(task.state)),
        columns.map((name) => h("td", { class: "number", "data-label": name }, shown(valueOf(task, name))))))))),
    left > 0 ? h("p", { class: "hint" }, `and ${count(left, "task")} more`) : null,
    latest.size < told.total ? h("p", { class: "hint" }, `Of ${told.total} tasks, ${latest.size} are compared: load all of them below, under Tasks.`) : null);
  }

  function heading(name, order) {
    const is = name === order.name;
    const sort = is ? (order.descending ? "descending" : "ascending") : "none";
    const button = h("button", { type: "button", class: "sort", "data-key": `sort-${name}` }, name, is ? (order.descending ? " \u2193" : " \u2191") : "");
    button.addEventListener("click", () => {
      chosen = { name, descending: is ? !order.descending : false };
      draw();
    });
    return h("th", { scope: "col", "aria-sort": sort }, button);
  }

  return {
    set(tasks, best, total) {
      told = { tasks, best, total };
      draw();
    },
    setAll(tasks) {
      more = new Map(tasks.map((task) => [task.id, task]));
      draw();
    },
  };
}

function varied(tasks) {
  const names = [...new Set(tasks.flatMap((task) => Object.keys(task.params)))];
  return names.filter((name) => new Set(tasks.map((task) => JSON.stringify(task.params[name]))).size > 1);
}

function valueOf(task, name) {
  return task.metrics[name] ?? task.params[name] ?? null;
}

// What was not measured comes last, whichever way the others go.
export function compare(a, b, descending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  return descending ? -order : order;
}

function shown(value) {
  if (value === null) return "";
  return typeof value === "number" ? amount(value) : String(value);
}
