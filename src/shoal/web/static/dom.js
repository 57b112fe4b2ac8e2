// Making elements, and writing amounts. Text is only ever set as text: whatever a job
// is called or writes, it cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
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

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
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

export function ago(at_s) {
  return span(Math.max(0, Date.now() / 1000 - at_s));
}

export function clock(at_s) {
  return new Date(at_s * 1000).toLocaleTimeString([], { hour12: false });
}

export function gib(bytes) {
  return amount(bytes / 2 ** 30);
}

export function amount(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (size !== 0 && (size >= 1e15 || size < 1e-3)) return number.toExponential(1);
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
