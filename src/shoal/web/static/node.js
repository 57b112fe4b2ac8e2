// The page of one node: what its machine uses over time, what it lends, what runs there,
// and its own rules in words.

import { ask } from "./api.js";
import { chart, colourOf, LIMIT } from "./chart.js";
import { command } from "./cli.js";
import { amount, bytes, facts, gib, h, lentMemory, moment, now, panel, percent, rebuild, rtt, since, span } from "./dom.js";
import { forgetAction, sizeOf } from "./nodes.js";
import { taskLink } from "./tasks.js";

const LOOK_MS = 5000;
const RANGES = [["10 min", 600], ["2 h", 7200], ["a day", 86400]];

export function nodePage(id) {
  const head = h("div", { class: "job-head" });
  const actions = h("div", { class: "actions" });
  const trouble = h("p", { class: "hint trouble", hidden: true });
  const crumb = h("span", {}, "…");
  const use = usePanel();
  const tasks = h("div", {});
  const rules = h("div", {});
  const useSection = panel("use", "What the machine uses", use.tools, use.element);
  const tasksSection = panel("there", "Tasks there", null, tasks);
  const rulesSection = panel("rules", "Its own rules", null, rules);
  let timer = 0;
  let stopped = false;
  let asked = false;
  for (const section of [useSection, tasksSection, rulesSection]) section.hidden = true;

  async function look() {
    clearTimeout(timer);
    if (stopped || asked) return;
    asked = true;
    try {
      if (!document.hidden) show(await ask(`/api/nodes/${id}?since_s=${Math.floor(use.latest)}`));
    } catch (error) {
      trouble.hidden = false;
      trouble.textContent = [error.message, error.because].filter(Boolean).join(": ");
    }
    asked = false;
    if (!stopped) timer = setTimeout(look, LOOK_MS);
  }

  function show(told) {
    const { node } = told;
    crumb.textContent = node.petname;
    showHead(head, told);
    rebuild(actions, node.away ? forgetAction(node) : [command(node.self ? "shoal doctor" : `shoal ping ${node.petname}`, "look at this node")]);
    trouble.hidden = !told.trouble;
    trouble.textContent = told.trouble;
    use.set(told.history, node);
    useSection.hidden = use.size === 0;
    tasksSection.hidden = Boolean(node.away);
    rebuild(tasks, told.tasks.length ? taskList(told.tasks) : h("p", { class: "empty" }, "Nothing runs there now."));
    rulesSection.hidden = !told.rules.length && !node.weaker.length && !node.terms;
    rebuild(rules, h("ul", { class: "whys" }, [...told.rules, ...(node.terms ? [node.terms] : [])].map((text) => h("li", {}, text))),
      node.weaker.length ? [h("h3", {}, "Held only in part"), h("ul", { class: "whys" }, node.weaker.map((text) => h("li", {}, text)))] : []);
  }

  look();
  return {
    element: h("div", { class: "node-page" },
      h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "/nodes" }, "Nodes"), h("span", { "aria-hidden": "true" }, "/"), crumb),
      head, actions, trouble, useSection, tasksSection, rulesSection),
    on: {},
    reset: () => { look(); },
    leave: () => { stopped = true; clearTimeout(timer); },
  };
}

function showHead(head, told) {
  const { node } = told;
  const state = node.away ? "away" : node.draining ? "draining" : node.worker ? "up" : "lends nothing";
  const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join(" ");
  const lent = node.worker ? `${amount((node.total.cpu_milli - node.free.cpu_milli) / 1000)} of ${amount(node.total.cpu_milli / 1000)} CPU, ${gib(lentMemory(node))} of ${gib(node.total.memory_bytes)} GiB${node.devices.length ? `, ${amount(node.devices.length - node.free.gpu_milli / 1000)} of ${node.devices.length} GPU` : ""}` : "";
  rebuild(head,
    h("div", { class: "title" }, h("h1", {}, node.petname), h("span", { class: `pill ${{ up: "done", draining: "waiting" }[state] ?? ""}` }, state), node.self ? h("span", { class: "soft" }, "this node") : null),
    h("p", { class: "id soft node-id" }, node.id),
    told.warnings.map((text) => h("p", { class: "why failed" }, text)),
    facts(
      node.away ? ["Away", since(node.away_since_s, { after: "" }), `, since ${moment(node.away_since_s)}: ${node.away}`] : null,
      node.away || node.self ? null : ["Path", node.path ? `${node.path} ${rtt(node.rtt_us)}` : "no link now"],
      node.worker ? ["Lends", sizeOf(node)] : null,
      lent ? ["Lent now", lent] : null,
      node.taken ? ["Not lent now", node.taken] : null,
      node.used && node.machine ? ["Used now", `CPU ${percent(node.used.cpu_milli, node.machine.cpu_milli)}, memory ${percent(node.used.memory_bytes, node.machine.memory_bytes)}, disk ${percent(node.used.disk_bytes, node.machine.disk_bytes)}`] : null,
      node.devices.length ? ["GPUs", [...new Set(node.devices.map((device) => `${device.model || "GPU"} ${device.memory_bytes ? bytes(device.memory_bytes) : ""}`))].join(", ")] : null,
      labels ? ["Labels", labels] : null,
      told.version ? ["Version", told.version] : null,
      told.up_s ? ["Up for", span(told.up_s)] : null,
      node.standing ? ["Its results", `${node.standing.trust}, ${node.standing.judged} compared`] : null));
}

function taskList(tasks) {
  return h("div", { class: "wide" }, h("table", {},
    h("caption", { class: "unseen" }, "Tasks that run on this node"),
    h("thead", {}, h("tr", {}, ["Task", "Submitted at", "For"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, tasks.map((task) => h("tr", {},
      h("th", { scope: "row", class: "id" }, task.began_s ? taskLink(task.job, task.task, task.task) : task.task),
      h("td", {}, task.scheduler.petname),
      h("td", {}, task.began_s ? since(task.began_s) : "")))))); 
}

// What the machine uses.

function usePanel() {
  const over = { across: "clock", from: 0, height: 150 };
  const sizes = { ...over, write: bytes, isBytes: true };
  const rates = { ...over, write: (value) => `${bytes(value)}/s`, isBytes: true, names: true };
  const charts = {
    cpu: chart("CPU", over),
    memory: chart("Memory", sizes),
    gpu: chart("GPU busy", { ...over, write: (value) => `${Math.round(value)} %`, names: true }),
    gpuMemory: chart("GPU memory", sizes),
    network: chart("Network", rates),
    disk: chart("Disk", rates),
    space: chart("Disk space", sizes),
  };
  const uses = new Map(); // by time: a coarse one replaces the fine ones it covers
  const buttons = RANGES.map(([name, length]) => h("button", { type: "button", class: "chip", "aria-pressed": String(length === 600), onclick: () => pick(length) }, name));
  let range = 600;
  let machine = null;

  function pick(length) {
    range = length;
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(RANGES[place][1] === length)));
    draw();
  }

  function draw() {
    const from = now() - range;
    const shown = [...uses.values()].filter((use) => use.at_s >= from).sort((a, b) => a.at_s - b.at_s);
    const line = (key, name, place, of) => ({ key, name, colour: colourOf(place), points: shown.map((use) => [use.at_s, of(use)]).filter(([, value]) => value !== undefined) });
    const top = (key, name, value) => (value && shown.length ? [{ key, name, colour: LIMIT, points: [[shown[0].at_s, value], [shown.at(-1).at_s, value]] }] : []);
    const devices = [...new Set(shown.flatMap((use) => use.devices.map((device) => device.id)))];
    const device = (id, field, by) => (use) => { const found = use.devices.find((each) => each.id === id); return found && found[field] / by; };
    charts.cpu.set([line("used", "used", 0, (use) => use.cpu_milli / 1000), ...top("all", "the machine has", machine?.cpu_milli / 1000)]);
    charts.memory.set([line("used", "used", 0, (use) => use.memory_bytes), ...top("all", "the machine has", machine?.memory_bytes)]);
    charts.network.set([line("in", "received", 0, (use) => use.received_bytes_s), line("out", "sent", 1, (use) => use.sent_bytes_s)]);
    charts.disk.set([line("read", "read", 0, (use) => use.read_bytes_s), line("written", "written", 1, (use) => use.written_bytes_s)]);
    charts.space.set([line("used", "used", 0, (use) => use.disk_bytes), ...top("all", "the disk has", machine?.disk_bytes)]);
    charts.gpu.set(devices.map((id, place) => line(id, `GPU ${id}`, place, device(id, "busy_milli", 10))));
    charts.gpuMemory.set(devices.map((id, place) => line(id, `GPU ${id}`, place, device(id, "memory_bytes", 1))));
  }

  return {
    element: h("div", { class: "curves" }, Object.values(charts).map((each) => each.element)),
    tools: h("div", { class: "chips", role: "group", "aria-label": "How far back" }, buttons),
    get latest() { return Math.max(0, ...[...uses.values()].map((use) => use.at_s)); },
    get size() { return uses.size; },
    set(history, node) {
      machine = node.machine;
      for (const use of history) uses.set(use.at_s, use);
      const [oldest] = [...uses.keys()].filter((at) => at < now() - 2 * 86400);
      if (oldest !== undefined) uses.delete(oldest);
      draw();
    },
  };
}
