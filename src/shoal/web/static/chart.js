// One chart: lines over steps or time. Drag to zoom, or the wheel over a chart that has
// the focus; a double click, Esc or the button shows all again. What the pointer is at is
// told with names.

import { amount, h, onWidth, s, span } from "./dom.js";
import { byteTicks, clockTicks, extent, logTicks, nearest, smoothed, ticks, within, zoomed } from "./scale.js";

const MARGIN = { left: 50, right: 12, top: 8, bottom: 22 };
const WIDE = 72; // The left margin of amounts with a unit.
const COLOURS = 8;
const LINES_MAX = 24;
const TOLD_MAX = 8;
const LOG_FROM = 100; // A figure that shrinks so much is shown by its logarithm.
const DRAG_PX = 6;
const WHEEL = 1.25;

export const LIMIT = "limit"; // The colour of a line that is not told, only drawn.

export function colourOf(place) {
  return `c${place % COLOURS} d${Math.floor(place / COLOURS) % 3}`;
}

// `across` says what x is: "step", "after" (seconds) or "clock" (seconds since 1970).
export function chart(title, { across = "step", write = amount, height = 180, from = null, isBytes = false, names = false } = {}) {
  const left = isBytes ? WIDE : MARGIN.left;
  const keys = h("span", { class: "keys" });
  let lines = [];
  let settings = { smoothing: 0, shown: null };
  let zoom = null;
  let isLog = null; // The visitor's choice; null: as the figures are.
  let drawn = null;
  let queued = 0;
  const latest = h("span", { class: "latest" });
  const logButton = h("button", { type: "button", class: "mini", "aria-pressed": "false", title: "Logarithmic scale" }, "log");
  const resetButton = h("button", { type: "button", class: "mini", hidden: true, title: "Show all (double click, or Esc)" }, "reset zoom");
  const svg = s("svg", { class: "chart", tabindex: "0", role: "img" });
  const told = h("div", { class: "told", hidden: true });
  const box = h("div", { class: "plot" }, svg, told);
  const element = h("figure", { class: "curve" }, h("figcaption", {}, h("span", { class: "figure" }, title), keys, h("span", { class: "minis" }, resetButton, logButton), latest), box);

  const ask = () => { queued ||= requestAnimationFrame(() => { queued = 0; draw(); }); };
  const setZoom = (range) => { zoom = range; ask(); };
  logButton.addEventListener("click", () => { isLog = !(drawn?.isLog ?? false); ask(); });
  resetButton.addEventListener("click", () => { setZoom(null); svg.focus({ preventScroll: true }); });
  onWidth(box, ask);

  function draw() {
    const width = Math.floor(box.clientWidth);
    if (!width) return;
    const wanted = lines.filter((line) => !settings.shown || settings.shown.has(line.key));
    const shown = wanted.slice(0, LINES_MAX);
    const all = extent(shown.flatMap((line) => [line.points[0][0], line.points.at(-1)[0]]));
    const xs = zoom ?? all;
    const parts = shown.map((line) => ({ ...line, raw: within(line.points, xs), soft: within(smoothed(line.points, settings.smoothing), xs) }));
    const values = parts.flatMap((part) => (settings.smoothing ? part.soft : part.raw).map(([, y]) => y));
    const found = extent(from === null ? values : [from, ...values]);
    const log = found[0] > 0 && (isLog ?? (from === null && found[1] / found[0] > LOG_FROM));
    const ys = log ? found : padded(found, from);
    const bend = log ? Math.log10 : (value) => value;
    const x = (value) => left + ((value - xs[0]) / (xs[1] - xs[0])) * (width - left - MARGIN.right);
    const y = (value) => height - MARGIN.bottom - ((bend(Math.max(value, log ? 1e-300 : -Infinity)) - bend(ys[0])) / (bend(ys[1]) - bend(ys[0]))) * (height - MARGIN.top - MARGIN.bottom);
    drawn = { x, y, xs, all, parts, width, isLog: log, back: (px) => xs[0] + ((px - left) / (width - left - MARGIN.right)) * (xs[1] - xs[0]) };
    const last = shown.filter((line) => line.colour !== LIMIT).map((line) => line.points.at(-1)[1]);
    if (names) keys.replaceChildren(...shown.filter((line) => line.colour !== LIMIT).map((line) => h("span", {}, h("i", { class: `key line ${line.colour}` }), line.name)));
    latest.textContent = last.length === 1 ? write(last[0]) : last.length ? `${write(Math.min(...last))} … ${write(Math.max(...last))}` : "";
    svg.setAttribute("aria-label", `${title}: ${shown.length} lines, latest ${latest.textContent}${zoom ? ", zoomed in" : ""}. Plus and minus zoom, arrows move, Escape shows all.`);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    logButton.setAttribute("aria-pressed", String(log));
    logButton.hidden = from !== null || found[0] <= 0;
    resetButton.hidden = !zoom;
    const yTicks = (log ? logTicks : isBytes ? byteTicks : ticks)(ys, 4).filter((value) => value >= ys[0] && value <= ys[1]);
    const offset = across === "after" ? all[0] : 0;
    const xTicks = (across === "step" ? ticks : clockTicks)(xs.map((value) => value - offset), Math.max(2, Math.floor(width / 110))).map((value) => value + offset);
    svg.replaceChildren(
      ...yTicks.flatMap((value) => [
        s("line", { class: "grid", x1: left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
        s("text", { class: "axis", x: left - 6, y: y(value) + 3.5, "text-anchor": "end" }, write(value))]),
      ...xTicks.map((value) => s("text", { class: "axis", x: x(value), y: height - 6, "text-anchor": "middle" }, place(value - offset))),
      clip(width, height),
      s("g", { "clip-path": `url(#${clipId})` }, parts.flatMap((part) => {
        const kind = `line ${part.colour}`;
        const path = (points) => points.map(([px, py]) => `${x(px).toFixed(1)},${y(py).toFixed(1)}`).join(" ");
        if (part.points.length === 1) return [s("circle", { class: kind, cx: x(part.points[0][0]), cy: y(part.points[0][1]), r: 3 })];
        if (!settings.smoothing) return [s("polyline", { class: kind, points: path(part.raw) })];
        return [s("polyline", { class: `${kind} faint`, points: path(part.raw) }), s("polyline", { class: kind, points: path(part.soft) })];
      })),
      selection, cursor);
    if (wanted.length > shown.length) svg.append(s("text", { class: "axis", x: left + 4, y: MARGIN.top + 8 }, `${shown.length} of ${wanted.length} lines; pick others below`));
  }

  const clipId = `clip-${Math.random().toString(36).slice(2)}`;
  const clip = (width, high) => s("clipPath", { id: clipId }, s("rect", { x: left - 2, y: 0, width: Math.max(0, width - left - MARGIN.right + 4), height: high - MARGIN.bottom + 2 }));
  const selection = s("rect", { class: "selection", y: MARGIN.top, height: height - MARGIN.top - MARGIN.bottom, width: 0 });
  const cursor = s("g", { class: "cursor" });

  function place(value) {
    if (across === "clock") return new Date(value * 1000).toLocaleTimeString([], { hour12: false, hour: "2-digit", minute: "2-digit", ...(drawn.xs[1] - drawn.xs[0] < 300 ? { second: "2-digit" } : {}) });
    return across === "after" ? span(Math.max(0, value)) : amount(value);
  }

  // Pointing.

  const at = (event) => ((event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth) * drawn.width;
  let began = null;

  function tell(px) {
    const wanted = drawn.back(px);
    const found = drawn.parts.filter((part) => part.points.length).map((part) => {
      const points = settings.smoothing ? part.soft : part.raw;
      return points.length ? { ...part, point: points[nearest(points, wanted)] } : null;
    }).filter(Boolean);
    if (!found.length) return;
    const [middle] = found.reduce((best, each) => (Math.abs(each.point[0] - wanted) < Math.abs(best.point[0] - wanted) ? each : best)).point;
    cursor.replaceChildren(s("line", { x1: drawn.x(middle), x2: drawn.x(middle), y1: MARGIN.top, y2: height - MARGIN.bottom }),
      ...found.map(({ point: [px_, py], colour }) => s("circle", { class: colour, cx: drawn.x(px_), cy: drawn.y(py), r: 3.5 })));
    const rows = [...found].sort((a, b) => b.point[1] - a.point[1]);
    const head = across === "step" ? `step ${amount(middle)}` : place(middle - (across === "after" ? drawn.all[0] : 0));
    told.replaceChildren(h("strong", {}, head), ...rows.slice(0, TOLD_MAX).map((row) => h("span", {}, h("i", { class: `key line ${row.colour}` }), h("span", { class: "whose" }, row.name), h("b", {}, write(row.point[1])))), ...(rows.length > TOLD_MAX ? [h("small", {}, `and ${rows.length - TOLD_MAX} more`)] : []));
    told.hidden = false;
    const isRight = drawn.x(middle) > drawn.width / 2;
    told.style.left = isRight ? "" : `${Math.round(drawn.x(middle) + 12)}px`;
    told.style.right = isRight ? `${Math.round(drawn.width - drawn.x(middle) + 12)}px` : "";
  }

  function silent() {
    told.hidden = true;
    cursor.replaceChildren();
  }

  svg.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    if (began !== null) {
      selection.setAttribute("x", Math.min(began, at(event)));
      selection.setAttribute("width", Math.abs(at(event) - began));
    } else tell(at(event));
  });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button || !drawn) return;
    began = at(event);
    silent();
    try { svg.setPointerCapture(event.pointerId); } catch { /* It has gone already. */ }
  });
  svg.addEventListener("pointerup", (event) => {
    const [first, last] = [began, drawn && at(event)];
    began = null;
    selection.setAttribute("width", 0);
    if (first === null || Math.abs(last - first) < DRAG_PX) return;
    const range = [drawn.back(Math.min(first, last)), drawn.back(Math.max(first, last))];
    setZoom([Math.max(range[0], drawn.all[0]), Math.min(range[1], drawn.all[1])]);
  });
  svg.addEventListener("pointercancel", () => { began = null; selection.setAttribute("width", 0); });
  svg.addEventListener("pointerleave", () => { if (began === null) silent(); });
  svg.addEventListener("dblclick", () => setZoom(null));
  svg.addEventListener("wheel", (event) => {
    if (!drawn || !(event.ctrlKey || event.shiftKey || document.activeElement === svg)) return; // It scrolls the page.
    event.preventDefault();
    const range = zoomed(drawn.xs, drawn.back(at(event)), event.deltaY + event.deltaX > 0 ? WHEEL : 1 / WHEEL, drawn.all);
    setZoom(range[0] <= drawn.all[0] && range[1] >= drawn.all[1] ? null : range);
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    if (!drawn) return;
    const [low, high] = drawn.xs;
    const middle = (low + high) / 2;
    const moved = (by) => (by > 0 ? Math.min(by, drawn.all[1] - high) : Math.max(by, drawn.all[0] - low));
    const by = moved((event.key === "ArrowRight" ? 1 : -1) * (high - low) * 0.2);
    const range = { "+": () => zoomed(drawn.xs, middle, 1 / WHEEL, drawn.all), "=": () => zoomed(drawn.xs, middle, 1 / WHEEL, drawn.all), "-": () => zoomed(drawn.xs, middle, WHEEL, drawn.all), ArrowLeft: () => [low + by, high + by], ArrowRight: () => [low + by, high + by], 0: () => null, Escape: () => null }[event.key];
    if (!range || (event.key === "Escape" && !zoom)) return;
    event.preventDefault();
    event.stopPropagation();
    setZoom(range());
  });

  return {
    element,
    // Lines have a key, a name, a colour, and points of x and y in order of x.
    set(found, chosen = settings) {
      lines = found.filter((line) => line.points.length);
      settings = chosen;
      element.hidden = lines.length === 0;
      ask();
    },
  };
}

function padded([low, high], from) {
  const room = (high - low) * 0.04;
  return [from === null ? low - room : Math.min(from, low), high + room];
}
