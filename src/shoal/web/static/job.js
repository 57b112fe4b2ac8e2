// The page of one job: what it is, what can be done, curves, runs, output, reasons.

import { ask, newJobId, order } from "./api.js";
import { action, command, quoted } from "./cli.js";
import { curvesPanel, nameTasks, placeOf, shortTask } from "./curves.js";
import { ago, amount, bar, clock, count, ENDED, h, keyed, pill, rebuild, setText } from "./dom.js";
import { ganttPanel } from "./gantt.js";
import { placesOf, progressOf, totalOf, whyOf } from "./jobs.js";
import { failed, go, notice } from "./main.js";
import { outputPanel } from "./output.js";
import { resultsPanel } from "./results.js";

const EXPLAIN_MS = 3000;
const TASKS_MAX = 200;

export function jobPage(id) {
  const head = h("div", { class: "job-head" });
  const actions = h("div", { class: "actions", role: "group", "aria-label": "What can be done" });
  const curves = h("div", { class: "figures" });
  const curvesSection = panel("curves", "Curves", command(`shoal show ${id} --json`, "the latest figures"), curves);
  const table = h("div", {});
  const resultsSection = panel("results", "Results", command(`shoal show ${id}`, "show the results"), table);
  const results = resultsPanel(table);
  const gantt = h("div", { class: "drawing" });
  const tasks = taskTable();
  const output = outputPanel();
  const picker = h("select", { "aria-label": "Whose output" });
  const logCommand = command(() => logsText(id), "follow the output");
  const reasons = explainPanel(id);
  const lines = curvesPanel(curves);
  const runs = ganttPanel(gantt);
  let state = "";
  curvesSection.hidden = true;
  resultsSection.hidden = true;
  picker.addEventListener("change", () => go(`/jobs/${id}${picker.value ? `?task=${encodeURIComponent(picker.value)}` : ""}`));

  return {
    element: h("div", { class: "job" },
      h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "/" }, "Jobs"), h("span", { "aria-hidden": "true" }, "/"), h("span", {}, id)),
      head, actions, reasons.element, resultsSection, curvesSection,
      panel("runs", "Where and when", null, gantt),
      panel("output", "Output", [h("div", { class: "ticks" }, picker, output.tools), logCommand], output.element),
      panel("tasks", "Tasks", command(`shoal show ${id}`, "show the job"), tasks.element)),
    on: {
      job: (told) => {
        const { job } = told;
        nameTasks(told.tasks);
        results.set(told.tasks, told.best);
        resultsSection.hidden = table.hidden;
        showHead(head, job);
        output.setMany(totalOf(job) > 1);
        tasks.set(told.tasks, totalOf(job));
        pickers(picker, told.tasks);
        if (state !== job.state) rebuild(actions, actionsOf(job));
        state = job.state;
        reasons.look(job);
      },
      curves: (told) => { lines.add(told); curvesSection.hidden = lines.size === 0; },
      happened: (told) => runs.add(told),
      output: (piece) => output.add(piece),
      "output-end": () => output.end(),
    },
    reset: () => { lines.reset(); runs.reset(); output.reset(); },
    leave: () => { runs.leave(); reasons.leave(); },
  };
}

function panel(name, title, tools, ...content) {
  return h("section", { class: "panel", "aria-labelledby": name }, h("div", { class: "head" }, h("h2", { id: name }, title), tools), content);
}

function logsText(id) {
  const task = new URLSearchParams(location.search).get("task");
  return `shoal logs -f ${id}${task ? ` --task ${quoted(placeOf(task))}` : ""}`;
}

// What it is.

function showHead(head, job) {
  const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  const code = job.exit_code === null ? null : fact("Exit code", String(job.exit_code));
  rebuild(head,
    h("div", { class: "title" }, h("h1", {}, job.name), pill(job.state)),
    whyOf(job) ? h("p", { class: `why ${job.state}` }, whyOf(job)) : null,
    h("dl", { class: "facts" },
      fact("Progress", progressOf(job)),
      placesOf(job) ? fact("On", job.nodes.map((node) => node.petname).join(", ")) : null,
      fact("Submitted", h("time", { title: new Date(job.submitted_s * 1000).toLocaleString() }, `${clock(job.submitted_s)}, ${ago(job.submitted_s)} ago`)),
      fact("Tasks", states(job)),
      job.priority ? fact("Priority", String(job.priority)) : null,
      code));
}

function states(job) {
  return Object.entries(job.tasks).filter(([, number]) => number).map(([state, number]) => `${number} ${state}`).join(", ");
}

// What can be done.

function actionsOf(job) {
  if (!ENDED.has(job.state)) {
    return [action("Cancel…", `shoal cancel ${job.id}`, () => askCancel(job), { kind: "danger" })];
  }
  const again = (failed_only) => async () => {
    try {
      const reply = await order(`/api/jobs/${job.id}/retry`, { job_id: newJobId(), failed_only });
      notice(`job ${reply.job.id} runs it again`);
      go(`/jobs/${reply.job.id}`);
    } catch (error) {
      failed(error);
    }
  };
  return [
    action("Retry", `shoal retry ${job.id}`, again(false)),
    totalOf(job) > 1 && job.tasks.done > 0 && job.tasks.done < totalOf(job) ? action("Retry what is not done", `shoal retry ${job.id} --failed`, again(true)) : null,
  ];
}

function askCancel(job) {
  const reason = h("input", { id: "reason", placeholder: "wrong learning rate", autocomplete: "off" });
  const text = () => `shoal cancel ${job.id}${reason.value ? ` --reason ${quoted(reason.value)}` : ""}`;
  const same = command(text, "cancel the job");
  reason.addEventListener("input", same.refresh);
  const dialog = h("dialog", { "aria-labelledby": "cancel-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "cancel-title" }, `Cancel ${job.name}?`),
      h("p", {}, `${count(totalOf(job), "task")} of job ${job.id} will end. What is done stays done.`),
      h("label", { for: "reason" }, "Why; it is kept with the job"),
      reason,
      h("p", {}, same),
      h("div", { class: "row end" }, h("button", { value: "", class: "act" }, "Let it go on"), h("button", { value: "yes", class: "act danger" }, "Cancel the job"))));
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", async () => {
      dialog.remove();
      if (dialog.returnValue === "yes") {
        try {
          await order(`/api/jobs/${job.id}/cancel`, { reason: reason.value });
          notice(`job ${job.id} is cancelled`);
        } catch (error) {
          failed(error);
        }
      }
      resolve();
    });
  });
}

// Its tasks.

function taskTable() {
  const rows = h("tbody");
  const more = h("p", { class: "empty", hidden: true });
  const create = () => h("tr", {}, ["Task", "State", "Progress", "Where", "Tries", "Figures", "Why"].map((name) => h("td", { "data-label": name })));
  const update = (row, task) => {
    const [name, state, progress, where, tries, figures, why] = row.cells;
    setText(name, shortTask(task.id));
    name.className = "id";
    row.title = task.recipe ? `recipe ${task.recipe}` : task.argv.join(" ");
    if (state.textContent !== task.state) state.replaceChildren(pill(task.state));
    if (task.fraction !== null) {
      const text = `${Math.round(100 * task.fraction)} %`;
      if (progress.textContent !== text) progress.replaceChildren(h("span", { class: "progress" }, bar(task.fraction, 1, { label: text }), h("span", { class: "number" }, text)));
    }
    setText(where, task.nodes.map((node) => node.petname).join(", "));
    setText(tries, String(task.attempts));
    setText(figures, Object.entries(task.metrics).slice(0, 3).map(([key, value]) => `${key} ${amount(value)}`).join("  "));
    setText(why, task.reason || (task.exit_code ? `exit code ${task.exit_code}` : ""));
    for (const cell of row.cells) cell.classList.toggle("blank", !cell.textContent);
  };
  return {
    element: h("div", {}, h("div", { class: "wide" }, h("table", { class: "tasks" },
      h("caption", { class: "unseen" }, "Tasks of this job"),
      h("thead", {}, h("tr", {}, ["Task", "State", "Progress", "Where", "Tries", "Figures", "Why"].map((name) => h("th", { scope: "col" }, name)))),
      rows)), more),
    set(tasks, total) {
      keyed(rows, tasks, (task) => task.id, create, update);
      more.hidden = total <= TASKS_MAX;
      setText(more, `and ${total - tasks.length} more: shoal show --tasks ${total} lists all`);
    },
  };
}

function pickers(picker, tasks) {
  const chosen = new URLSearchParams(location.search).get("task") ?? "";
  picker.hidden = tasks.length < 2;
  if (picker.childElementCount === tasks.length + 1) return;
  picker.replaceChildren(h("option", { value: "" }, "all tasks"), ...tasks.map((task) => h("option", { value: task.id }, shortTask(task.id))));
  picker.value = chosen;
}

// Placement.

function explainPanel(id) {
  const body = h("div", { class: "reasons" });
  const details = h("details", { class: "panel" }, h("summary", {}, h("h2", {}, "Placement"), command(`shoal explain ${id}`, "explain")), body);
  let timer = 0;
  let last = "";
  let touched = false;
  details.addEventListener("toggle", () => { if (details.open) fetchNow(); });
  details.querySelector("summary").addEventListener("click", () => { touched = true; });

  async function fetchNow() {
    try {
      const told = await ask(`/api/jobs/${id}/explain`);
      rebuild(body, told.tasks.map(explanation), told.more ? h("p", {}, `and ${told.more} other groups`) : null);
    } catch (error) {
      rebuild(body, h("p", { class: "empty" }, error.message));
    }
  }

  return {
    element: details,
    look(job) {
      details.hidden = ENDED.has(job.state);
      if (!touched) details.open = job.state === "waiting";
      const told = JSON.stringify([job.state, job.reason, job.tasks]);
      if (told === last || details.hidden || !details.open) return;
      last = told;
      clearTimeout(timer);
      timer = setTimeout(fetchNow, EXPLAIN_MS);
    },
    leave: () => clearTimeout(timer),
  };
}

function explanation(task) {
  const verdicts = [...task.refused.map((each) => ["said", each]), ...task.rejected.map((each) => ["short", each])].slice(0, 20);
  return h("article", {},
    h("p", {}, h("span", { class: "id" }, shortTask(task.task)), " ", pill(task.state), task.nodes.length ? ` on ${task.nodes.map((node) => node.petname).join(", ")}` : ""),
    h("dl", { class: "facts" },
      h("div", {}, h("dt", {}, "Asks"), h("dd", {}, task.needs)),
      task.state === "waiting" ? h("div", {}, h("dt", {}, "Could run it now"), h("dd", {}, `${task.fitting} of ${count(task.fitting + task.rejected.length, "node")}`)) : null),
    task.why.length ? h("ul", { class: "whys" }, task.why.map((why) => h("li", {}, why))) : null,
    task.state === "waiting" && verdicts.length ? h("table", { class: "verdicts" }, h("tbody", {}, verdicts.map(([how, each]) => h("tr", {}, h("th", { scope: "row" }, each.petname), h("td", {}, how), h("td", {}, each.reason))))) : null,
    task.helps.length ? h("div", { class: "helps" }, h("span", {}, "What would help"), task.helps.map((help) => (help.startsWith("--") ? command(help, "a change that would help") : h("span", { class: "help" }, help)))) : null);
}
