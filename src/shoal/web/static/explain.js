// Why tasks wait, or run where they run: the answer of `shoal explain`.

import { ask } from "./api.js";
import { command } from "./cli.js";
import { shortTask } from "./curves.js";
import { count, ENDED, h, pill, rebuild } from "./dom.js";

const EXPLAIN_MS = 3000;
const VERDICTS_MAX = 20;

export function explainPanel(id) {
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
  const verdicts = [...task.refused.map((each) => ["said", each]), ...task.rejected.map((each) => ["short", each])].slice(0, VERDICTS_MAX);
  return h("article", {},
    h("p", {}, h("span", { class: "id" }, shortTask(task.task)), " ", pill(task.state), task.nodes.length ? ` on ${task.nodes.map((node) => node.petname).join(", ")}` : ""),
    h("dl", { class: "facts" },
      h("div", {}, h("dt", {}, "Asks"), h("dd", {}, task.needs)),
      task.state === "waiting" ? h("div", {}, h("dt", {}, "Could run it now"), h("dd", {}, `${task.fitting} of ${count(task.fitting + task.rejected.length, "node")}`)) : null),
    task.why.length ? h("ul", { class: "whys" }, task.why.map((why) => h("li", {}, why))) : null,
    task.state === "waiting" && verdicts.length ? h("table", { class: "verdicts" }, h("tbody", {}, verdicts.map(([how, each]) => h("tr", {}, h("th", { scope: "row" }, each.petname), h("td", {}, how), h("td", {}, each.reason))))) : null,
    task.helps.length ? h("div", { class: "helps" }, h("span", {}, "What would help"), task.helps.map((help) => (help.startsWith("--") ? command(help, "a change that would help") : h("span", { class: "help" }, help)))) : null);
}
