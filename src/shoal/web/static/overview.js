// The first page: the shoal at a glance, its topology, its jobs, what happened of late.

import { forgetToken, order } from "./api.js";
import { action, command } from "./cli.js";
import { amount, bar, clock, count, ENDED, gib, h, lentMemory, percent, rebuild, soon } from "./dom.js";
import { jobsTable } from "./jobs.js";
import { failed, notice } from "./main.js";
import { quoted } from "./text.js";
import { topology } from "./topology.js";

const EVENTS_MAX = 100;

export function overviewPage() {
  const glance = h("dl", { class: "glance", "aria-label": "The shoal at a glance" });
  const drawing = h("div", { class: "drawing" });
  const alone = h("p", { class: "hint", hidden: true }, "Only this machine so far. ", command("shoal invite", "let another machine join"), " lets another one join.");
  const away = h("p", { class: "hint", hidden: true });
  const jobs = jobsTable();
  const log = h("ol", { class: "events" });
  const quiet = h("p", { class: "empty" }, "Nothing has happened yet.");
  const asking = h("div", { class: "asking", role: "status", "aria-live": "polite" });
  const foot = h("footer", { class: "foot" });
  const net = topology(drawing);
  let nodes = [];
  let found = { jobs: [], total: 0 };
  let events = [];

  const drawEvents = soon(() => {
    quiet.hidden = events.length > 0;
    rebuild(log, [...events].reverse().map(line));
  });
  const look = () => rebuild(glance, tiles(nodes, found));
  return {
    element: h("div", { class: "overview" },
      h("h1", { class: "unseen" }, "Overview"),
      asking,
      glance,
      h("section", { class: "panel", "aria-labelledby": "topology" },
        h("div", { class: "head" }, h("h2", { id: "topology" }, "Topology"), command("shoal nodes", "list nodes")),
        drawing, alone, away, legend()),
      h("section", { class: "panel", "aria-labelledby": "jobs" },
        h("div", { class: "head" }, h("h2", { id: "jobs" }, "Jobs"), command("shoal ps", "list jobs")),
        jobs.element),
      h("section", { class: "panel", "aria-labelledby": "events" },
        h("div", { class: "head" }, h("h2", { id: "events" }, "Recent events"), command("shoal events -f", "follow events")),
        quiet, log),
      foot),
    on: {
      info: (info) => { net.setGates(info.gates); rebuild(foot, about(info)); },
      nodes: (told) => {
        nodes = told.filter((node) => !node.away);
        net.setNodes(nodes);
        alone.hidden = told.length > 1;
        const gone = told.length - nodes.length;
        away.hidden = gone === 0;
        rebuild(away, h("a", { href: "/nodes" }, `${count(gone, "node")} away`), gone <= 3 ? `: ${told.filter((node) => node.away).map((node) => node.petname).join(", ")}` : "");
        look();
      },
      requests: (told) => rebuild(asking, knocks(told)),
      jobs: (told) => { found = told; jobs.set(told.jobs); look(); },
      happened: (told) => {
        events = [...events, ...told].slice(-EVENTS_MAX);
        drawEvents();
      },
    },
    reset: () => { events = []; },
  };
}

// Who asks to join: a person types the code that the other screen shows, so it is not
// shown here. What was typed stays when the list is drawn anew.
const typed = new Map();

function knocks({ shoal, newcomers, near }) {
  const wants = newcomers.map((each) => h("section", { class: "panel knock" },
    h("p", {}, h("strong", {}, `${each.petname} wants to join “${shoal}”`)),
    h("p", {}, h("label", {}, "The code on its screen: ", codeField(each))),
    h("p", { class: "hint" }, each.has ? `It says that it lends “${each.has}”. ` : "", "Members may run code on each other’s machines."),
    h("div", { class: "actions" },
      action("Accept", `shoal accept ${quoted(each.petname)}`, () => answer(each, false), { kind: "primary" }),
      action("Decline", `shoal accept ${quoted(each.petname)} --decline`, () => answer(each, true)))));
  const joins = near?.state === "accepted" ? [h("section", { class: "panel knock" },
    h("p", {}, "Code ", h("code", { class: "code" }, near.code)),
    h("p", {}, h("strong", {}, `${near.petname} lets this machine into “${near.shoal}”`)),
    h("p", { class: "hint" }, "Join only if the other machine took this code. Members may run code on each other’s machines."),
    h("div", { class: "actions" },
      action("Join", `shoal accept ${quoted(near.petname)}`, () => answer(near, false), { kind: "primary" })))] : [];
  return [...wants, ...joins];
}

function codeField(each) {
  return h("input", {
    type: "text", class: "code", maxlength: "40", autocomplete: "off", "data-key": `code-${each.id}`,
    value: typed.get(each.id) ?? "", oninput: (event) => typed.set(each.id, event.target.value),
  });
}

async function answer(each, decline) {
  try {
    await order("/api/accept", { node: each.id, code: typed.get(each.id) ?? "", decline });
    typed.delete(each.id);
    notice(decline ? `${each.petname} is not let in` : `${each.petname} may join`);
  } catch (error) {
    failed(error);
  }
}

function tiles(nodes, found) {
  const workers = nodes.filter((node) => node.worker);
  const telling = nodes.filter((node) => node.used && node.machine);
  const sum = (from, of) => from.reduce((total, node) => total + of(node), 0);
  const cpu = sum(workers, (node) => node.total.cpu_milli) / 1000;
  const cpuLent = cpu - sum(workers, (node) => node.free.cpu_milli) / 1000;
  const memory = sum(workers, (node) => node.total.memory_bytes);
  const memoryLent = sum(workers, lentMemory);
  const gpus = sum(workers, (node) => node.devices.length);
  const gpusLent = gpus - sum(workers, (node) => node.free.gpu_milli) / 1000;
  const used = (of, all) => (telling.length ? h("span", {}, `${percent(sum(telling, of), sum(telling, all))} used`) : null);
  const cpuUsed = used((node) => node.used.cpu_milli, (node) => node.machine.cpu_milli);
  const memoryUsed = used((node) => node.used.memory_bytes, (node) => node.machine.memory_bytes);
  const active = found.jobs.filter((job) => !ENDED.has(job.state));
  const running = active.reduce((total, job) => total + job.tasks.running, 0);
  const waiting = active.reduce((total, job) => total + job.tasks.waiting, 0);
  const tile = (name, text, rest, ...more) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, text), h("span", {}, rest), more));
  return [
    tile("Nodes", String(nodes.length), workers.length === nodes.length ? "" : `${workers.length} lend`),
    tile("CPU", amount(cpuLent), `of ${amount(cpu)} lent`, bar(cpuLent, cpu, { warns: true }), cpuUsed),
    tile("Memory", gib(memoryLent), `of ${gib(memory)} GiB lent`, bar(memoryLent, memory, { warns: true }), memoryUsed),
    gpus ? tile("GPU", amount(gpusLent), `of ${amount(gpus)} lent`, bar(gpusLent, gpus, { warns: true })) : tile("GPU", "none", ""),
    tile("Jobs", String(active.length), `active of ${found.total}`),
    tile("Tasks", String(running), `running, ${waiting} waiting`),
  ];
}

function about(info) {
  const forget = () => { forgetToken(); location.reload(); };
  return [
    h("span", {}, `shoal ${info.version}`),
    info.policy ? h("span", {}, `policy ${info.policy}`) : null,
    info.relays ? h("span", {}, "relays for others") : null,
    h("button", { type: "button", class: "plain", onclick: forget }, "Forget the token in this browser"),
  ];
}

function legend() {
  const item = (kind, text) => h("li", {}, h("span", { class: `key ${kind}`, "aria-hidden": "true" }), text);
  return h("ul", { class: "legend", "aria-label": "Kinds of links" },
    item("direct", "direct"), item("stream", "libp2p"), item("relay", "relayed by a gate"), item("none", "no link now"));
}

function line(event) {
  const text = event.job ? h("a", { href: `/jobs/${event.job}`, "data-key": `event-${event.number}` }, event.text) : event.text;
  return h("li", {}, h("time", {}, clock(event.at_s)), h("span", { class: `what ${event.what}` }, event.what), h("span", { class: "text" }, text));
}
