// Making elements, and writing amounts. Text is only ever set as text: whatever a job
// is called or writes, it cannot become markup.

import { visible } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...shown.map((child) => (child instanceof Node ? child : visible(String(child)))));
  return element;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

// Put new children into a parent; the focus stays on what has the same data-key.
export function rebuild(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset?.key : null;
  parent.replaceChildren(...children.flat().filter(Boolean));
  if (focused) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

// Keep one element for each item, in the order of the items: what somebody has focused
// or selected stays. `update` gets the element and the item.
export function keyed(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = null;
  for (const item of items) {
    const id = key(item);
    let element = known.get(id);
    known.delete(id);
    if (!element) {
      element = create(item);
      element.dataset.key = id;
    }
    update(element, item);
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== element) parent.insertBefore(element, place);
    before = element;
  }
  for (const gone of known.values()) gone.remove();
}

// Draw anew whenever there is more or less room; not at once, as drawing needs room too.
export function onWidth(element, draw) {
  let width = -1;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    requestAnimationFrame(draw);
  }).observe(element);
}

// Return a function that draws soon, and once for all calls until then: a job of
// thousands of tasks tells of thousands of things a second.
export function soon(draw, ms = 250) {
  let timer = 0;
  return () => { timer ||= setTimeout(() => { timer = 0; draw(); }, ms); };
}

export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

// A part of a page with a heading, and what belongs to the heading.
export function panel(name, title, tools, ...content) {
  return h("section", { class: "panel", "aria-labelledby": name }, h("div", { class: "head" }, h("h2", { id: name }, title), tools), content);
}

export function facts(...pairs) {
  const known = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "");
  return h("dl", { class: "facts" }, known.map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Times. The clock of the node counts: that of a phone may be wrong.

let ahead = 0;

export function setClock(atMs) {
  const off = atMs - Date.now();
  ahead = Math.abs(off) > 5000 ? off : 0; // The answer itself takes a moment.
}

export function now() {
  return (Date.now() + ahead) / 1000;
}

// How long ago something was, or how long it took if it is over; it goes on by itself.
export function since(at_s, { until = null, after = "" } = {}) {
  const element = h("time", { title: moment(at_s) });
  setSince(element, at_s, { until, after });
  return element;
}

export function setSince(element, at_s, { until = null, after = "" } = {}) {
  element.dataset.at = at_s;
  element.dataset.until = until ?? "";
  element.dataset.after = after;
  tick(element);
}

function tick(element) {
  const { at, until, after } = element.dataset;
  setText(element, span(Math.max(0, (until ? Number(until) : now()) - Number(at))) + after);
}

export function tickAll() {
  for (const element of document.querySelectorAll("time[data-at]")) if (!element.dataset.until) tick(element);
}

export function moment(at_s) {
  return new Date(at_s * 1000).toLocaleString([], { hour12: false });
}

// Writing things.

export function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [size, unit, smaller, smallUnit] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= size) return `${Math.floor(whole / size)} ${unit} ${Math.floor((whole % size) / smaller)} ${smallUnit}`;
  }
  return `${whole} s`;
}

export function clock(at_s) {
  return new Date(at_s * 1000).toLocaleTimeString([], { hour12: false });
}

export function gib(bytes) {
  return amount(bytes / 2 ** 30);
}

// What tasks hold. What other programs take is neither lent nor free.
export function lentMemory(node) {
  return Math.max(0, node.total.memory_bytes - node.free.memory_bytes - (node.withheld?.memory_bytes ?? 0));
}

export function bytes(number) {
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (number >= size) return `${Number((number / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(number)} B`;
}

export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "";
}

export function amount(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (size !== 0 && (size >= 1e15 || size < 1e-3)) return number.toExponential(1).replace(".0e", "e").replace("e+", "e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${Number((number / (letter === "k" ? 1e3 : unit)).toPrecision(3))}${letter}`;
  }
  return String(Number(number.toPrecision(size >= 100 ? 4 : 3)));
}

export function count(number, what) {
  return number === 1 ? `1 ${what}` : `${number} ${what}s`;
}

export function rtt(us) {
  if (!us) return "";
  return us < 1000 ? `${(us / 1000).toFixed(2)} ms` : `${amount(us / 1000)} ms`;
}

export const ENDED = new Set(["done", "failed", "cancelled", "unknown"]);

export function pill(state) {
  return h("span", { class: `pill ${state}` }, state);
}

// A bar; what is lent nearly whole has another colour, what is nearly done has not.
export function bar(used, total, { label, warns = false } = {}) {
  const share = total ? Math.min(1, used / total) : 0;
  const inner = h("span", { class: warns && share > 0.95 ? "full" : "" });
  inner.style.width = `${Math.round(share * 100)}%`;
  return h("span", { class: "bar", role: "img", "aria-label": label ?? `${Math.round(share * 100)} %` }, inner);
}
