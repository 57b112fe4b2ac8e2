// The nodes as this one sees them: itself in the middle, and how it reaches each other.
// A few nodes are cards on a ring; many are dots; on a narrow screen they are a list.

import { amount, gib, lentMemory, onWidth, percent, rebuild, rtt, s } from "./dom.js";

const CARD = { width: 212, height: 84 };
const ALONE = 264; // Wide enough for any name, where nothing is beside it.
const CARDS_MAX = 8;
const NARROW = 640;
const SQUARE = 10;
const SQUARES_MAX = 11;
const GAP = 12;
const MORE = 40; // Room for the line that leads to all nodes.
const INDENT = 32; // Of others, in a list.
const LABELS_MAX = 48;
const LISTED_MAX = 12;
const INNERMOST = 0.42; // Of the outermost ring: nearer, dots would lie on the card.
const RINGS_MAX = 7;
const PER_RING = 60;
const LETTER = 5.6; // How wide a letter of a label is, about.

export function topology(parent) {
  let nodes = [];
  let gates = [];
  const draw = () => {
    if (!nodes.length) return;
    const width = Math.floor(parent.clientWidth);
    if (width > 0) rebuild(parent, picture(nodes, gates, width));
  };
  onWidth(parent, draw);
  return {
    setNodes(found) { nodes = found; draw(); },
    setGates(found) { gates = found; draw(); },
  };
}

function picture(nodes, gates, width) {
  const self = nodes.find((node) => node.self) ?? nodes[0];
  const sorted = nodes.filter((node) => node !== self).sort((a, b) => (a.petname < b.petname ? -1 : 1));
  // Below each other, many nodes would hide the rest of the page: the busiest are shown.
  const tooMany = width < NARROW && sorted.length > LISTED_MAX;
  const others = tooMany ? [...sorted].sort((a, b) => b.active - a.active).slice(0, LISTED_MAX) : sorted;
  const placed = width < NARROW ? list(self, others, width) : others.length <= CARDS_MAX ? ring(self, others, width) : dots(self, others, width);
  const links = others.map((node) => link(node, self, placed, gates)).filter(Boolean);
  return s("svg", {
    class: others.length > LABELS_MAX ? "topology many" : "topology", width, height: placed.height + (tooMany ? MORE : 0), viewBox: `0 0 ${width} ${placed.height + (tooMany ? MORE : 0)}`,
    role: "group", "aria-label": `Topology: ${nodes.length} nodes as ${self.petname} sees them`,
  },
  links.map((each) => each.line),
  [self, ...others].map((node) => placed.draw(node, placed.at.get(node.id))),
  links.map((each) => each.label),
  tooMany ? s("g", { class: "node", "data-href": "/nodes", tabindex: "0", role: "link", "data-key": "more-nodes" }, s("text", { class: "name", x: INDENT, y: placed.height + MORE / 2 + 4 }, `and ${sorted.length - LISTED_MAX} other nodes: show all`)) : null);
}

// Where things are. `at` holds the middle of each.

function ring(self, others, width) {
  const n = others.length;
  const height = n === 0 ? CARD.height + 2 * GAP : n <= 2 ? 150 : n <= 4 ? 352 : 420;
  const at = new Map([[self.id, { x: width / 2, y: height / 2 }]]);
  const rx = Math.min(460, width / 2 - CARD.width / 2 - 4);
  const ry = height / 2 - CARD.height / 2 - 4;
  const from = n <= 2 ? Math.PI : -Math.PI / 2;
  others.forEach((node, place) => {
    const angle = from + (2 * Math.PI * place) / Math.max(1, n);
    at.set(node.id, { x: width / 2 + rx * Math.cos(angle), y: height / 2 + ry * Math.sin(angle) });
  });
  return { at, height, draw: (node, point) => card(node, point, others.length ? CARD.width : ALONE) };
}

function dots(self, others, width) {
  const named = others.length <= LABELS_MAX;
  const rings = named ? 1 : Math.min(RINGS_MAX, Math.ceil(others.length / PER_RING));
  const height = 460;
  const at = new Map([[self.id, { x: width / 2, y: height / 2 }]]);
  const shares = Array.from({ length: rings }, (_, which) => 1 - (which * (1 - INNERMOST)) / Math.max(1, rings - 1));
  const whole = shares.reduce((a, b) => a + b, 0);
  let first = 0;
  let passed = 0;
  for (const share of shares) { // As many on each as it is long.
    passed += share;
    const last = Math.round((others.length * passed) / whole);
    others.slice(first, last).forEach((node, place) => {
      const angle = -Math.PI / 2 + (2 * Math.PI * place) / (last - first);
      at.set(node.id, { x: width / 2 + share * (width / 2 - 136) * Math.cos(angle), y: height / 2 + share * (height / 2 - 26) * Math.sin(angle), angle });
    });
    first = last;
  }
  return {
    at, height, quiet: true,
    draw: (node, point) => (node.self ? card(node, point, CARD.width) : dot(node, point, named)),
  };
}

function list(self, others, width) {
  const step = CARD.height + 30;
  const at = new Map([[self.id, { x: width / 2, y: CARD.height / 2 + 2 }]]);
  others.forEach((node, place) => at.set(node.id, { x: (width + INDENT) / 2, y: CARD.height / 2 + 2 + (place + 1) * step }));
  const height = CARD.height + 6 + others.length * step;
  return { at, height, column: true, draw: (node, point) => card(node, point, (node.self ? width : width - INDENT) - 4) };
}

// Links.

function link(node, self, placed, gates) {
  const end = placed.at.get(node.id);
  const gate = node.path === "relay" ? gates.find((each) => each.id !== node.id && placed.at.has(each.id)) : null;
  const start = placed.at.get(gate && !placed.column ? gate.id : self.id);
  const how = node.path || "none";
  const text = node.path ? [how === "stream" ? "libp2p" : how, rtt(node.rtt_us)].filter(Boolean).join(" ") : "no link now";
  const told = gate ? `${text} via ${gate.petname}` : text;
  if (placed.column) {
    const from = start.y + CARD.height / 2;
    return {
      line: s("path", { class: `link ${how}`, d: `M12 ${from}V${end.y - 8}q0 8 8 8H${INDENT}` }),
      label: s("text", { class: "link-text", x: INDENT + 6, y: end.y - CARD.height / 2 - 7 }, told),
    };
  }
  const line = s("line", { class: `link ${how}`, x1: start.x, y1: start.y, x2: end.x, y2: end.y });
  return { line, label: placed.quiet ? null : tag(told, { x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 }) };
}

function tag(text, { x, y }) {
  const width = text.length * LETTER + 14;
  return s("g", { class: "tag", "aria-hidden": "true" },
    s("rect", { x: x - width / 2, y: y - 9, width, height: 18, rx: 9 }),
    s("text", { x, y: y + 4, "text-anchor": "middle" }, text));
}

// Nodes.

function card(node, { x, y }, width) {
  const left = x - width / 2;
  const top = y - CARD.height / 2;
  const inner = width - 2 * GAP;
  const parts = [
    s("rect", { class: "card", x: left, y: top, width, height: CARD.height, rx: 8 }),
    s("text", { class: "name", x: left + GAP, y: top + 21 }, shortened(node.petname, inner - 14 - stateOf(node).length * LETTER)),
    s("text", { class: `state${node.draining ? " warn" : ""}`, x: left + width - GAP, y: top + 21, "text-anchor": "end" }, stateOf(node)),
  ];
  if (node.worker) {
    const total = node.total;
    const free = node.free;
    const bars = (inner - GAP) / 2;
    parts.push(
      meter(left + GAP, top + 31, bars, total.cpu_milli - free.cpu_milli, total.cpu_milli, "CPU", (v) => amount(v / 1000)),
      meter(left + GAP + bars + GAP, top + 31, bars, lentMemory(node), total.memory_bytes, "GiB", gib),
      devices(node.devices, left + GAP, top + 63, inner));
  } else {
    parts.push(s("text", { class: "quiet", x: left + GAP, y: top + 50 }, node.self ? "schedules, lends nothing" : "linked, lends nothing here"));
  }
  return s("g", { class: `node${node.self ? " self" : ""}${node.path || node.self ? "" : " away"}`, "data-href": `/nodes/${node.id}`, tabindex: "0", role: "link", "data-key": `node-${node.id}`, "aria-label": told(node) }, s("title", {}, told(node)), parts);
}

function dot(node, { x, y, angle }, named) {
  const used = node.worker ? 1 - node.free.cpu_milli / Math.max(1, node.total.cpu_milli) : 0;
  const out = Math.cos(angle);
  const anchor = Math.abs(out) < 0.25 ? "middle" : out > 0 ? "start" : "end";
  const dx = anchor === "middle" ? 0 : 12 * Math.sign(out);
  const dy = anchor === "middle" ? 18 * Math.sign(Math.sin(angle)) + 4 : 4;
  return s("g", { class: `node dot${node.path ? "" : " away"}`, "data-href": `/nodes/${node.id}`, tabindex: "0", role: "link", "data-key": `node-${node.id}`, "aria-label": told(node) },
    s("title", {}, told(node)),
    s("circle", { class: "card", cx: x, cy: y, r: 7 }),
    s("circle", { class: "used", cx: x, cy: y, r: 7 * Math.sqrt(Math.max(0, used)) }),
    named ? s("text", { class: "name small", x: x + dx, y: y + dy, "text-anchor": anchor }, node.petname) : null);
}

function meter(x, y, width, used, total, unit, write) {
  const share = total ? Math.min(1, used / total) : 0;
  return s("g", {},
    s("text", { class: "amount", x, y: y + 8 }, `${write(used)}/${write(total)} ${unit}`),
    s("rect", { class: "trough", x, y: y + 14, width, height: 5, rx: 2.5 }),
    s("rect", { class: share > 0.95 ? "level full" : "level", x, y: y + 14, width: share * width, height: 5, rx: 2.5 }));
}

function devices(found, x, y, width) {
  if (!found.length) return s("text", { class: "quiet", x, y: y + 8 }, "no GPU");
  const shown = found.slice(0, SQUARES_MAX);
  const squares = shown.map((device, place) => {
    const share = 1 - device.free_milli / 1000;
    const left = x + place * (SQUARE + 4);
    return s("g", {},
      s("title", {}, `${device.model || "GPU"} ${device.id}: ${Math.round(100 * share)} % lent`),
      s("rect", { class: "device", x: left, y, width: SQUARE, height: SQUARE, rx: 2 }),
      s("rect", { class: "level", x: left, y: y + SQUARE * (1 - share), width: SQUARE, height: SQUARE * share, rx: share === 1 ? 2 : 0 }));
  });
  const end = shown.length * (SQUARE + 4) + 4;
  const more = found.length - shown.length;
  const text = more > 0 ? `+${more}` : kinds(found);
  squares.push(s("text", { class: "quiet", x: x + end, y: y + 9 }, shortened(text, width - end)));
  return s("g", {}, squares);
}

function kinds(found) {
  const names = [...new Set(found.map((device) => device.model || "GPU"))];
  const memory = found[0].memory_bytes ? ` ${gib(found[0].memory_bytes)} GB` : "";
  return names.length === 1 ? names[0] + memory : names.join(", ");
}

function stateOf(node) {
  if (node.draining) return "draining";
  if (node.self) return "this node";
  return node.active ? `${node.active} running` : node.worker ? "idle" : "";
}

function told(node) {
  const path = node.self ? "this node" : node.path ? `${node.path} ${rtt(node.rtt_us)}` : "no link now";
  if (!node.worker) return `${node.petname}: ${path}, lends nothing`;
  const cpu = `CPU ${amount((node.total.cpu_milli - node.free.cpu_milli) / 1000)} of ${amount(node.total.cpu_milli / 1000)} lent`;
  const memory = `memory ${gib(lentMemory(node))} of ${gib(node.total.memory_bytes)} GiB lent`;
  const gpus = node.devices.length ? `${node.devices.length} GPU, ${amount(node.devices.length - node.free.gpu_milli / 1000)} lent` : "no GPU";
  const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join(" ");
  const used = node.used && node.machine ? `the machine uses ${percent(node.used.cpu_milli, node.machine.cpu_milli)} of its CPU and ${percent(node.used.memory_bytes, node.machine.memory_bytes)} of its memory` : "";
  return [`${node.petname}: ${path}`, cpu, memory, gpus, used, `${node.active} tasks`, labels].filter(Boolean).join("\n");
}

function shortened(text, width) {
  const most = Math.max(3, Math.floor(width / 7.4));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
