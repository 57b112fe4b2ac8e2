// A new job: a command with what it needs, or a whole spec; planned, then submitted.

import { newJobId, order } from "./api.js";
import { action } from "./cli.js";
import { h, rebuild, rtt } from "./dom.js";
import { failed, go, notice } from "./main.js";
import { quoted } from "./text.js";

const FIELDS = [
  ["name", "Name", "resnet50", "--name"],
  ["cpu", "CPUs", "1", "--cpu"],
  ["ram", "Memory", "4GB", "--ram"],
  ["gpu", "GPUs", "24GB:1", "--gpus"],
  ["time_limit", "Time limit", "2h", "--time-limit"],
];
const NEEDS = ["cpu", "ram", "gpu"];
const EXAMPLE = `name: sweep
command: python3 -c 'print({lr})'
sweep: {lr: [0.1, 0.03, 0.01]}
resources: {cpu: 1, ram: 1GB}
`;

export function submitPage() {
  const line = h("input", { id: "command", class: "code", placeholder: "python3 train.py --lr 0.1", autocomplete: "off", spellcheck: "false" });
  const fields = FIELDS.map(([name, label, example]) => [name, h("input", { id: name, placeholder: example, autocomplete: "off", spellcheck: "false" }), label]);
  const text = h("textarea", { id: "spec", class: "code", rows: "12", spellcheck: "false", value: EXAMPLE });
  const simple = h("div", { class: "form" },
    h("div", { class: "field whole" }, h("label", { for: "command" }, "Command"), line),
    fields.map(([name, input, label]) => h("div", { class: "field" }, h("label", { for: name }, label), input)));
  const whole = h("div", { class: "form", hidden: true }, h("div", { class: "field whole" }, h("label", { for: "spec" }, "Job spec, in YAML"), text));
  const result = h("div", { class: "plan", "aria-live": "polite" });
  let isWhole = false;

  const values = () => Object.fromEntries(fields.map(([name, input]) => [name, input.value.trim()]).filter(([, value]) => value));
  const spec = () => (isWhole ? text.value : JSON.stringify(specOf(line.value.trim(), values())));
  const typed = (verb) => () => (isWhole ? `shoal ${verb} - <<'END'\n${text.value.trimEnd()}\nEND` : commandOf(verb, line.value.trim(), values()));

  const plan = action("Plan", typed("plan"), async () => {
    try {
      rebuild(result, planned(await order("/api/plan", { spec: spec() })));
    } catch (error) {
      rebuild(result, problem(error));
    }
  });
  const submit = action("Submit", typed("submit"), async () => {
    try {
      const reply = await order("/api/jobs", { spec: spec(), job_id: newJobId() });
      for (const note of reply.notes) notice(note);
      go(`/jobs/${reply.job.id}`);
    } catch (error) {
      rebuild(result, problem(error));
      failed(error);
    }
  }, { kind: "primary" });
  const refresh = () => { for (const each of [plan, submit]) each.querySelector(".cli").refresh(); };
  for (const input of [line, text, ...fields.map(([, each]) => each)]) input.addEventListener("input", refresh);
  line.addEventListener("keydown", (event) => { if (event.key === "Enter") submit.querySelector("button").click(); });

  const tab = (label, chosen) => h("button", { type: "button", class: "chip", "aria-pressed": String(chosen === isWhole), onclick: () => choose(chosen) }, label);
  const tabs = [tab("a command", false), tab("a job spec", true)];
  function choose(chosen) {
    isWhole = chosen;
    simple.hidden = chosen;
    whole.hidden = !chosen;
    tabs.forEach((button, place) => button.setAttribute("aria-pressed", String(chosen === Boolean(place))));
    refresh();
  }

  return {
    element: h("div", { class: "submit" },
      h("section", { class: "panel", "aria-labelledby": "new" },
        h("div", { class: "head" }, h("h1", { id: "new" }, "A new job"), h("div", { class: "chips", role: "group", "aria-label": "How to write it" }, tabs)),
        simple, whole,
        h("p", { class: "hint" }, "A job that needs files of yours is submitted from their folder, by shoal submit --workdir."),
        h("div", { class: "actions" }, plan, submit),
        result)),
    on: {},
  };
}

function specOf(commandText, given) {
  const rest = Object.fromEntries(Object.entries(given).filter(([name]) => !NEEDS.includes(name)));
  const needs = Object.fromEntries(Object.entries(given).filter(([name]) => NEEDS.includes(name)).map(([name, value]) => [name, /^\d+(\.\d+)?$/.test(value) ? Number(value) : value]));
  return { command: commandText, ...rest, ...(Object.keys(needs).length ? { resources: needs } : {}) };
}

export function commandOf(verb, commandText, given) {
  const flags = FIELDS.filter(([name]) => given[name]).map(([name, , , flag]) => `${flag} ${quoted(given[name])}`);
  return ["shoal", verb, ...flags, "--", commandText || "COMMAND"].join(" ");
}

function problem(error) {
  return h("div", { class: "problem" }, h("strong", {}, error.message), error.because ? h("p", {}, error.because) : null, error.hint ? h("p", {}, `Next: ${error.hint}`) : null);
}

function planned(told) {
  return h("div", {},
    h("p", { class: told.fits_now ? "good" : "bad" }, told.fits_now ? "It would start now." : "There is no room now; it would wait.", ` ${told.needs}`),
    told.groups.map((group) => h("div", { class: "wide" },
      h("table", { class: "verdicts" },
        h("caption", {}, `${group.group}: ${group.tasks === 1 ? "1 task" : `${group.tasks} tasks`}, each ${group.needs}`),
        h("thead", {}, h("tr", {}, ["Node", "Path", "Start", "Why"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, group.prospects.map((each) => h("tr", {},
          h("th", { scope: "row" }, each.node.petname),
          h("td", {}, each.node.self ? "self" : `${each.node.path} ${rtt(each.node.rtt_us)}`),
          h("td", {}, each.slots > 1 ? `${each.when}, ${each.slots} of them` : each.when),
          h("td", {}, each.why)))))),
    ),
    told.groups.flatMap((group) => group.helps).slice(0, 4).map((help) => h("p", { class: "hint" }, `Would help: ${help}`)));
}
