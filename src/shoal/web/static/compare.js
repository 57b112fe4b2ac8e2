// Several jobs on the same charts: which lines are whose, and how each job ended.

import { ask } from "./api.js";
import { command } from "./cli.js";
import { curvesPanel, nameTasks, shortTask } from "./curves.js";
import { ENDED, h, panel, pill, rebuild, since } from "./dom.js";
import { go } from "./main.js";
import { totalOf } from "./jobs.js";

const LOOK_MS = 4000;
const JOBS_MAX = 8;

export function comparePage(asked) {
  const ids = [...new Set(asked)].slice(0, JOBS_MAX);
  const jobs = new Map(); // by id
  const seen = new Map(); // by id: the time of the latest point
  const curves = h("div", { class: "figures" });
  const lines = curvesPanel(curves, nameOf, { together: true });
  const table = h("tbody");
  const trouble = h("p", { class: "hint trouble", hidden: true });
  const empty = h("p", { class: "empty", hidden: true }, "These jobs have told no figures yet: shoal.log tells some.");
  const adding = h("select", { "aria-label": "Add a job" });
  let timer = 0;
  let stopped = false;

  // Keys of lines are task ids; a job with one task is called by its own name.
  function nameOf(task) {
    const job = jobs.get(task.split(".")[0]);
    if (!job) return task;
    const names = [...jobs.values()].map((each) => each.name);
    const name = names.filter((each) => each === job.name).length > 1 ? `${job.name} ${job.id}` : job.name;
    return totalOf(job) === 1 ? name : `${name} · ${shortTask(task)}`;
  }

  async function look() {
    clearTimeout(timer);
    trouble.hidden = true;
    await Promise.all(ids.map(one));
    rebuild(table, ids.filter((id) => jobs.has(id)).map(row));
    empty.hidden = lines.size > 0;
    const goes = [...jobs.values()].some((job) => !ENDED.has(job.state));
    if (!stopped && goes) timer = setTimeout(look, LOOK_MS);
  }

  async function one(id) {
    try {
      const before = jobs.get(id);
      if (before && ENDED.has(before.state) && seen.has(id)) return;
      const told = await ask(`/api/jobs/${id}`);
      const since_s = seen.get(told.job.id) ?? 0;
      const found = await ask(`/api/jobs/${told.job.id}/curves?since_s=${Math.floor(since_s)}`);
      jobs.set(id, told.job);
      nameTasks(told.tasks);
      let latest = since_s;
      for (const figures of Object.values(found)) {
        for (const [name, points] of Object.entries(figures)) {
          figures[name] = points.filter(([at]) => at > since_s);
          for (const [at] of figures[name]) latest = Math.max(latest, at);
          if (!figures[name].length) delete figures[name];
        }
      }
      seen.set(told.job.id, latest);
      lines.add(found);
    } catch (error) {
      trouble.hidden = false;
      trouble.textContent = `${id}: ${error.message}`;
    }
  }

  function row(id) {
    const job = jobs.get(id);
    return h("tr", { "data-href": `/jobs/${job.id}` },
      h("th", { scope: "row" }, h("a", { class: "id", href: `/jobs/${job.id}` }, job.id)),
      h("td", {}, job.name),
      h("td", {}, pill(job.state)),
      h("td", {}, job.began_s ? since(job.began_s, { until: job.ended_s }) : ""),
      h("td", {}, h("button", { type: "button", class: "mini", "aria-label": `Take ${job.name} out`, onclick: () => go(path(ids.filter((each) => each !== id))) }, "take out")));
  }

  adding.addEventListener("change", () => go(path([...ids, adding.value])));
  look();
  return {
    element: h("div", { class: "compare" },
      h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "/" }, "Jobs"), h("span", { "aria-hidden": "true" }, "/"), h("span", {}, "compare")),
      panel("compared", "Compared jobs", ids.length < JOBS_MAX ? h("label", { class: "tick" }, "add", adding) : null,
        h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["Job", "Name", "State", "Took", ""].map((name) => h("th", { scope: "col" }, name)))), table)), trouble),
      panel("curves", "Curves", [lines.tools, command(ids.map((id) => `shoal metrics ${id} --csv`).join("; "), "all figures")], curves, empty)),
    on: {
      jobs: (told) => {
        const others = told.jobs.filter((job) => !ids.includes(job.id));
        if (adding.childElementCount !== others.length + 1) adding.replaceChildren(h("option", { value: "" }, "another job"), ...others.map((job) => h("option", { value: job.id }, `${job.name} ${job.id}`)));
      },
    },
    reset: () => { if (jobs.size) look(); },
    leave: () => { stopped = true; clearTimeout(timer); },
  };
}

export function path(ids) {
  return `/compare?jobs=${ids.map(encodeURIComponent).join(",")}`;
}

export function idsOf(search) {
  return (new URLSearchParams(search).get("jobs") ?? "").split(",").filter((id) => /^[A-Za-z0-9_-]{1,64}$/.test(id));
}
