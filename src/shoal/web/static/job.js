// The page of one job, or of one task of it: what it is, what can be done, results,
// curves, runs, files, output, tasks.

import { ask, newJobId, order } from "./api.js";
import { action, command } from "./cli.js";
import { curvesPanel, nameTasks, placeOf, shortTask } from "./curves.js";
import { clock, count, ENDED, facts, h, moment, panel, pill, rebuild, since } from "./dom.js";
import { explainPanel } from "./explain.js";
import { ganttPanel } from "./gantt.js";
import { progressOf, totalOf, whyOf } from "./jobs.js";
import { failed, go, notice } from "./main.js";
import { outputPanel } from "./output.js";
import { download, outputsPanel } from "./outputs.js";
import { resultsPanel } from "./results.js";
import { stepsPanel } from "./steps.js";
import { taskLink, tasksTable } from "./tasks.js";
import { commandLine, quoted } from "./text.js";

const ALL_BYTES = 64 * 2 ** 20;

export function jobPage(id, task, restart) {
  const of = task ? ` --task ${quoted(placeOf(task))}` : "";
  const head = h("div", { class: "job-head" });
  const actions = h("div", { class: "actions", role: "group", "aria-label": "What can be done" });
  const crumb = h("span", { class: "id" }, task ? placeOf(task) : id);
  const reasons = explainPanel(id);
  const steps = stepsPanel();
  const stepsSection = panel("steps", "What it runs", null, steps.element);
  const table = h("div", {});
  const resultsSection = panel("results", "Results", command(`shoal show ${id}`, "show the results"), table);
  const results = resultsPanel(table, id);
  const curves = h("div", { class: "figures" });
  const lines = curvesPanel(curves, shortTask);
  const curvesSection = panel("curves", "Curves", [lines.tools, h("a", { href: `/compare?jobs=${id}` }, "compare"), command(`shoal metrics ${id} --csv`, "all figures")], curves);
  const gantt = h("div", { class: "drawing" });
  const runs = ganttPanel(gantt);
  const files = outputsPanel(id, task, () => filesSection);
  const filesSection = panel("files", "Files", null, files.element);
  const output = outputPanel({ onAll: () => restart({ log_bytes: ALL_BYTES }), onSave: () => download({ job: id, task, log: true }) });
  const picker = h("select", { "aria-label": "Whose output" });
  const tasks = tasksTable(id, (found) => results.setAll(found));
  let state = "";
  for (const section of [curvesSection, resultsSection, filesSection]) section.hidden = true;
  picker.addEventListener("change", () => go(`/jobs/${id}${picker.value ? `?task=${encodeURIComponent(picker.value)}` : ""}`));

  return {
    element: h("div", { class: "job" },
      h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "/" }, "Jobs"), h("span", { "aria-hidden": "true" }, "/"),
        task ? [h("a", { class: "id", href: `/jobs/${id}` }, id), h("span", { "aria-hidden": "true" }, "/")] : null, crumb),
      head, actions, task ? null : reasons.element, task ? null : resultsSection, curvesSection, task ? null : stepsSection,
      panel("runs", "Where and when", null, gantt),
      filesSection,
      panel("output", "Output", [h("div", { class: "ticks" }, picker, output.tools), command(`shoal logs -f ${id}${of}`, "follow the output")], output.element),
      task ? null : panel("tasks", "Tasks", command(`shoal show ${id}`, "show the job"), tasks.element)),
    on: {
      job: (told) => {
        const { job } = told;
        nameTasks(told.tasks);
        const one = task ? told.tasks.find((each) => each.id === task) : null;
        if (task) { if (one) showTask(head, job, one); else fetchTask(id, task, head, job); } else showHead(head, job, told.tasks);
        results.set(told.tasks, told.best, totalOf(job));
        resultsSection.hidden = table.hidden;
        steps.set(told.steps);
        output.setMany(totalOf(job) > 1 && !task);
        tasks.set(told.tasks, totalOf(job));
        files.look(job);
        pickers(picker, told.tasks, task);
        if (state !== job.state) rebuild(actions, actionsOf(job));
        state = job.state;
        reasons.look(job);
      },
      curves: (told) => {
        lines.add(task ? Object.fromEntries(Object.entries(told).filter(([key]) => key === task)) : told);
        curvesSection.hidden = lines.size === 0;
      },
      happened: (told) => runs.add(task ? told.filter((event) => !event.task || event.task === task) : told),
      output: (piece) => output.add(piece),
      "output-end": () => output.end(),
    },
    reset: () => { lines.reset(); runs.reset(); output.reset(); },
    leave: () => { runs.leave(); reasons.leave(); },
  };
}

// What it is.

function places(nodes) {
  return nodes.flatMap((node, place) => [place ? ", " : "", h("a", { href: `/nodes/${node.id}`, "data-key": `on-${node.id}` }, node.petname)]);
}

function times(what) {
  return [
    what.began_s ? ["Began", h("span", { title: moment(what.began_s) }, clock(what.began_s))] : null,
    what.began_s ? [what.ended_s ? "Took" : "Runs for", since(what.began_s, { until: what.ended_s })] : null,
  ];
}

function showHead(head, job, tasks) {
  const only = tasks.length === 1 && totalOf(job) === 1 ? Object.entries(tasks[0].params) : [];
  rebuild(head,
    h("div", { class: "title" }, h("h1", {}, job.name), pill(job.state)),
    whyOf(job) ? h("p", { class: `why ${job.state}` }, whyOf(job)) : null,
    facts(
      ["Progress", progressOf(job)],
      job.nodes.length ? ["On", places(job.nodes.slice(0, 8)), job.nodes.length > 8 ? ` and ${job.nodes.length - 8} more` : ""] : null,
      ["Submitted", h("span", { title: moment(job.submitted_s) }, `${clock(job.submitted_s)}, `), since(job.submitted_s, { after: " ago" })],
      ...times(job),
      job.schedule ? null : ["Tasks", states(job)],
      job.priority ? ["Priority", String(job.priority)] : null,
      job.exit_code === null ? null : ["Exit code", String(job.exit_code)],
      ...schedule(job),
      job.parent ? ["Submitted by", taskLink(job.parent.split(".")[0], job.parent, job.parent), job.detached ? " and outlives it" : ""] : null,
      ...only.slice(0, 12).map(([name, value]) => [name, String(value)])));
}

// When it runs again, if it is a schedule; or which schedule started it.
function schedule(job) {
  const said = job.schedule;
  const link = (id) => h("a", { class: "id", href: `/jobs/${id}`, "data-key": `run-${id}` }, id);
  if (job.scheduled_by) return [["Run of", link(job.scheduled_by)]];
  if (!said) return [];
  return [
    ["Schedule", h("code", {}, said.cron), ` ${said.timezone}`],
    said.next_s ? ["Next run", moment(said.next_s)] : null,
    ["Runs so far", String(said.runs)],
    said.last ? ["Last run", link(said.last)] : null,
  ];
}

function showTask(head, job, task) {
  const params = Object.entries(task.params);
  rebuild(head,
    h("div", { class: "title" }, h("h1", {}, shortTask(task.id)), pill(task.state), h("span", { class: "soft" }, job.name)),
    task.reason ? h("p", { class: `why ${task.state}` }, task.reason) : null,
    facts(
      task.nodes.length ? ["On", places(task.nodes)] : null,
      ...times(task),
      ["Attempts", String(task.attempts)],
      task.exit_code === null ? null : ["Exit code", String(task.exit_code)],
      ["Needs", task.needs],
      ...params.map(([name, value]) => [name, String(value)])),
    task.recipe ? h("p", {}, "recipe ", h("code", {}, task.recipe)) : h("p", { class: "run-line" }, command(commandLine(task.argv), "what it runs")));
}

// A task beyond the first few hundred is not in the stream.
async function fetchTask(id, task, head, job) {
  if (head.dataset.asked === job.state) return;
  head.dataset.asked = job.state;
  const told = await ask(`/api/jobs/${id}?tasks=10000`).catch(() => ({ tasks: [] }));
  const one = told.tasks.find((each) => each.id === task);
  if (one) { nameTasks([one]); showTask(head, job, one); } else rebuild(head, h("h1", {}, `There is no task ${placeOf(task)}`), h("p", {}, taskLink(id, "", "The job")));
}

function states(job) {
  return Object.entries(job.tasks).filter(([, number]) => number).map(([state, number]) => `${number} ${state}`).join(", ");
}

// What can be done.

function actionsOf(job) {
  if (!ENDED.has(job.state) && !job.schedule) {
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
  if (job.schedule) {
    return [
      action("Run now", `shoal retry ${job.id}`, again(false)),
      action("Cancel…", `shoal cancel ${job.id}`, () => askCancel(job), { kind: "danger" }),
    ];
  }
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
      h("p", {}, job.schedule ? `Job ${job.id} will not run again. A run that has begun goes on.` : `${count(totalOf(job), "task")} of job ${job.id} will end. What is done stays done.`),
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

function pickers(picker, tasks, chosen) {
  picker.hidden = tasks.length < 2;
  if (picker.childElementCount === tasks.length + 1) return;
  picker.replaceChildren(h("option", { value: "" }, "all tasks"), ...tasks.map((task) => h("option", { value: task.id }, shortTask(task.id))));
  picker.value = chosen;
}
