// All nodes: what each lends, what its machine uses, and which are away.

import { order } from "./api.js";
import { action, command } from "./cli.js";
import { amount, bar, bytes, count, gib, h, keyed, lentMemory, panel, percent, rebuild, rtt, setText, since } from "./dom.js";
import { failed, notice } from "./main.js";

const DRAWN_MAX = 300;
const COLUMNS = ["Node", "State", "Path", "CPU", "Memory", "GPU", "Tasks"];

export function nodesPage() {
  const rows = h("tbody");
  const filter = h("input", { type: "search", placeholder: "Filter by name, state or label", "aria-label": "Filter nodes; the key / leads here" });
  const note = h("p", { class: "hint", hidden: true });
  const away = h("div", { class: "away-list" });
  const awaySection = panel("away", "Away", null, away);
  let nodes = [];
  awaySection.hidden = true;
  filter.addEventListener("input", draw);

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const here = nodes.filter((node) => !node.away && (!wanted || textOf(node).includes(wanted)));
    keyed(rows, here.slice(0, DRAWN_MAX), (node) => node.id, create, update);
    note.hidden = here.length <= DRAWN_MAX && here.length > 0;
    setText(note, here.length ? `the first ${DRAWN_MAX} of ${here.length}` : "No node is like that.");
    const gone = nodes.filter((node) => node.away);
    awaySection.hidden = gone.length === 0;
    keyed(away, gone, (node) => node.id, awayRow, (row, node) => setText(row.querySelector(".how"), node.away));
  }

  return {
    element: h("div", { class: "nodes-page" },
      panel("all-nodes", "Nodes", command("shoal nodes", "list nodes"),
        h("p", { class: "hint" }, "Bars show what is lent. Percentages are what the machine really uses; only your own nodes tell that."),
        h("div", { class: "tools" }, filter),
        h("div", { class: "wide" }, h("table", { class: "nodes" },
          h("caption", { class: "unseen" }, "Nodes that are here"),
          h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
          rows)), note),
      awaySection),
    on: { nodes: (told) => { nodes = told; draw(); } },
  };
}

function textOf(node) {
  return [node.petname, node.id, node.path, node.draining ? "draining" : "up", ...Object.entries(node.labels).map(([name, value]) => `${name}=${value}`), ...node.devices.map((device) => device.model)].join(" ").toLowerCase();
}

function create(node) {
  return h("tr", { "data-href": `/nodes/${node.id}` }, COLUMNS.map((name) => h("td", { "data-label": name }, name === "Node" ? h("a", { href: `/nodes/${node.id}` }) : null)));
}

function update(row, node) {
  const told = JSON.stringify(node);
  if (row.dataset.told === told) return;
  row.dataset.told = told;
  const [name, state, path, cpu, memory, gpu, tasks] = row.cells;
  setText(name.firstChild, node.petname);
  setText(state, node.draining ? "draining" : node.worker ? "up" : node.self ? "lends nothing" : "linked");
  setText(path, node.self ? "this node" : `${node.path || "no link now"} ${node.path ? rtt(node.rtt_us) : ""}`);
  const { used, machine } = node;
  rebuild(cpu, node.worker ? meter(node.total.cpu_milli - node.free.cpu_milli, node.total.cpu_milli, (v) => amount(v / 1000), " CPU") : null, share(used?.cpu_milli, machine?.cpu_milli));
  rebuild(memory, node.worker ? meter(lentMemory(node), node.total.memory_bytes, gib, " GiB") : null, share(used?.memory_bytes, machine?.memory_bytes));
  const busy = used?.devices.length ? used.devices.reduce((sum, device) => sum + device.busy_milli, 0) : undefined;
  rebuild(gpu, node.devices.length ? meter(1000 * node.devices.length - node.free.gpu_milli, 1000 * node.devices.length, (v) => amount(v / 1000), ` ${node.devices[0].model || "GPU"}`) : null, share(busy, 1000 * (used?.devices.length ?? 0)));
  setText(tasks, node.worker ? String(node.active) : "");
  for (const cell of row.cells) cell.classList.toggle("blank", !cell.textContent);
}

function meter(lent, total, write, unit) {
  const text = `${write(lent)}/${write(total)}${unit}`;
  return h("span", { class: "progress" }, bar(lent, total, { label: `${text} lent`, warns: true }), h("span", { class: "number" }, text));
}

function share(part, whole) {
  return part === undefined || !whole ? null : h("span", { class: "soft used-share", title: "used by the machine, shoal or not" }, `${percent(part, whole)} used`);
}

function awayRow(node) {
  return h("div", { class: "away-row" },
    h("a", { href: `/nodes/${node.id}` }, node.petname),
    h("span", { class: "soft" }, since(node.away_since_s, { after: " ago: " }), h("span", { class: "how" }, node.away)),
    forgetAction(node));
}

export function forgetAction(node) {
  return action("Forget", `shoal nodes --forget ${node.petname}`, async () => {
    try {
      await order("/api/forget", { node: node.id });
      notice(`${node.petname} is forgotten`);
    } catch (error) {
      failed(error);
    }
  });
}

export function sizeOf(node) {
  const gpus = node.devices.length ? count(node.devices.length, "GPU") : "no GPU";
  return `${amount(node.total.cpu_milli / 1000)} CPU, ${bytes(node.total.memory_bytes)}, ${gpus}`;
}
