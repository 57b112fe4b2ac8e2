// What a job writes, as it writes it: followed, searched, with times. A window of lines
// is drawn; the others wait in memory until somebody scrolls to them.

import { clock, h, setText } from "./dom.js";
import { shortTask } from "./curves.js";
import { withoutEscapes } from "./text.js";

const KEPT_MAX = 200000;
const DRAWN_MAX = 2000;
const MORE = 500;
const NEAR = 40; // Whoever is so near to the end wants to stay there.
const EDGE = 300;
const TYPING_MS = 150;
const TRACEBACK = /^Traceback \(most recent call last\)/;
const TROUBLE = /\b(?:[A-Za-z]*(?:Error|Exception)\b|error:|fatal|panic(?:ked)?\b|segmentation fault|killed|out of memory|assert(?:ion)? failed)/i;

// Programs write their progress to stderr, too: only what looks wrong there is marked.
export function looksWrong(text) {
  return TROUBLE.test(text) || text.startsWith("Traceback ");
}

// Return the places of lines with trouble: where each traceback begins, or, without any,
// lines that look like one.
export function troublesOf(lines) {
  const found = { traces: [], others: [] };
  lines.forEach(({ text }, place) => {
    if (TRACEBACK.test(text)) found.traces.push(place);
    else if (TROUBLE.test(text)) found.others.push(place);
  });
  return found.traces.length ? found.traces : found.others;
}

export function matchesOf(lines, wanted) {
  const small = wanted.toLowerCase();
  const found = [];
  lines.forEach(({ text }, place) => { if (text.toLowerCase().includes(small)) found.push(place); });
  return found;
}

export function outputPanel({ onAll, onSave }) {
  const box = h("div", { class: "output", role: "log", tabindex: "0", "aria-label": "Output" });
  const empty = h("p", { class: "empty" }, "It has written nothing yet.");
  const following = h("input", { type: "checkbox", checked: true });
  const wrapping = h("input", { type: "checkbox", checked: true });
  const timing = h("input", { type: "checkbox" });
  const search = h("input", { type: "search", placeholder: "Search the output", "aria-label": "Search the output" });
  const found = h("span", { class: "soft found", role: "status" });
  const mini = (text, about, onclick) => h("button", { type: "button", class: "mini", title: about, "aria-label": about, onclick }, text);
  const all = h("button", { type: "button", class: "mini", hidden: true, onclick: () => onAll() }, "load all of it");
  const trouble = mini("jump to the error", "Jump to the last error; again: to the one before", () => jumpToTrouble());
  const rests = new Map();
  let lines = [];
  let [first, last] = [0, 0]; // Which lines are drawn.
  let fresh = 0;
  let many = false;
  let asked = 0;
  let timer = 0;
  let matches = [];
  let match = -1;
  let troubles = null;

  following.addEventListener("change", () => { if (following.checked) toEnd(); });
  wrapping.addEventListener("change", () => box.classList.toggle("flat", !wrapping.checked));
  timing.addEventListener("change", () => box.classList.toggle("timed", timing.checked));
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => look(true), TYPING_MS); });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); } });
  box.addEventListener("scroll", () => {
    following.checked = last === lines.length && box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
    if (box.scrollTop < EDGE && first > 0) earlier();
    else if (box.scrollHeight - box.scrollTop - box.clientHeight < EDGE && last < lines.length) later();
  }, { passive: true });

  // Drawing.

  function line(place) {
    const { task, stream, text, at } = lines[place];
    const who = many && task ? h("span", { class: "who" }, shortTask(task)) : null;
    const time = h("time", { class: "when" }, at ? clock(at) : "");
    const wrong = stream === "stderr" && looksWrong(text) ? " wrong" : "";
    return h("div", { class: `${stream}${wrong}${place === matches[match] ? " here" : ""}`, "data-place": place }, time, who, marked(text));
  }

  function marked(text) {
    const wanted = search.value.trim();
    if (!wanted) return text || " ";
    const parts = [];
    const small = text.toLowerCase();
    let from = 0;
    for (let at = small.indexOf(wanted.toLowerCase()); at >= 0 && parts.length < 40; at = small.indexOf(wanted.toLowerCase(), from)) {
      parts.push(text.slice(from, at), h("mark", {}, text.slice(at, at + wanted.length)));
      from = at + wanted.length;
    }
    return [...parts, text.slice(from) || (parts.length ? "" : " ")];
  }

  function drawn(from, to) {
    return Array.from({ length: Math.max(0, to - from) }, (_, n) => line(from + n));
  }

  function window_(from) {
    first = Math.max(0, Math.min(from, lines.length - DRAWN_MAX));
    last = Math.min(lines.length, first + DRAWN_MAX);
    box.replaceChildren(...drawn(first, last));
  }

  function earlier() {
    const from = Math.max(0, first - MORE);
    const before = box.scrollHeight;
    box.prepend(...drawn(from, first));
    first = from;
    box.scrollTop += box.scrollHeight - before;
    while (last - first > DRAWN_MAX) { box.lastElementChild.remove(); last -= 1; }
  }

  function later() {
    const to = Math.min(lines.length, last + MORE);
    box.append(...drawn(last, to));
    last = to;
    const before = box.scrollHeight;
    while (last - first > DRAWN_MAX) { box.firstElementChild.remove(); first += 1; }
    box.scrollTop -= before - box.scrollHeight;
  }

  function toEnd() {
    if (last < lines.length) window_(lines.length - DRAWN_MAX);
    box.scrollTop = box.scrollHeight;
  }

  function flush() {
    asked = 0;
    troubles = null;
    const added = fresh;
    fresh = 0;
    let gone = 0;
    if (lines.length > KEPT_MAX) {
      gone = lines.length - KEPT_MAX + MORE;
      lines = lines.slice(gone);
      matches = [];
    }
    empty.hidden = lines.length > 0;
    const was = last === lines.length - added + gone || gone > 0;
    if (following.checked) {
      if (!gone && added <= MORE && was) { box.append(...drawn(last, lines.length)); last = lines.length; } else window_(lines.length - DRAWN_MAX);
      while (last - first > DRAWN_MAX) { box.firstElementChild.remove(); first += 1; }
      box.scrollTop = box.scrollHeight;
    } else if (gone) window_(Math.max(0, first - gone));
    else if (last - first < DRAWN_MAX && last < lines.length) {
      const to = Math.min(lines.length, first + DRAWN_MAX);
      box.append(...drawn(last, to));
      last = to;
    }
    if (search.value.trim()) look(false);
  }

  function push(text, { task = "", stream, at = null }) {
    lines.push({ task, stream, text: withoutEscapes(text.split("\r").at(-1)), at });
    fresh += 1;
    asked ||= requestAnimationFrame(flush);
  }

  // Finding.

  function look(anew) {
    const wanted = search.value.trim();
    matches = wanted ? matchesOf(lines, wanted) : [];
    if (anew || match >= matches.length) match = matches.length - 1;
    if (anew && matches.length) show(matches[match]);
    else if (anew) window_(following.checked ? lines.length - DRAWN_MAX : first);
    tell();
  }

  function tell() {
    const wanted = search.value.trim();
    setText(found, !wanted ? "" : matches.length ? `${match + 1} of ${matches.length}` : "nowhere");
  }

  function step(by) {
    if (!matches.length) return;
    match = (match + by + matches.length) % matches.length;
    show(matches[match]);
    tell();
  }

  function show(place) {
    following.checked = false;
    window_(place - DRAWN_MAX / 2);
    const element = box.querySelector(`[data-place="${place}"]`);
    if (!element) return;
    for (const other of box.querySelectorAll(".here")) other.classList.remove("here");
    element.classList.add("here");
    box.scrollTop = element.offsetTop - box.offsetTop - box.clientHeight / 3;
  }

  function jumpToTrouble() {
    troubles ??= troublesOf(lines);
    const current = Number(box.querySelector(".here")?.dataset.place ?? lines.length);
    const before = troubles.filter((place) => place < current);
    const place = before.at(-1) ?? troubles.at(-1);
    if (place !== undefined) show(place);
    setText(found, place === undefined ? "no error seen" : "");
  }

  return {
    element: h("div", {},
      h("div", { class: "tools" }, search, found,
        h("span", { class: "minis" }, mini("↑", "Previous match", () => step(-1)), mini("↓", "Next match", () => step(1)), trouble, all, mini("download", "Download the whole log", () => onSave()))),
      h("div", { class: "box" }, empty, box)),
    tools: [h("label", { class: "tick" }, following, "follow"), h("label", { class: "tick" }, wrapping, "wrap"), h("label", { class: "tick" }, timing, "times")],
    setMany(is) { many = is; },
    reset() {
      rests.clear();
      lines = [];
      [first, last, fresh, match, matches, troubles] = [0, 0, 0, -1, [], null];
      box.replaceChildren();
      empty.hidden = false;
      all.hidden = true;
    },
    add({ task, stream, attempt, pieces, cut, missing }) {
      if (missing) return push(`attempt ${attempt}: lines may be missing: ${missing}`, { task, stream: "note" });
      const key = JSON.stringify([task, attempt, stream]);
      if (!rests.has(key) && attempt > 1) push(`attempt ${attempt}`, { task, stream: "note" });
      let { text: rest, at: began } = rests.get(key) ?? { text: "", at: null };
      if (cut) { all.hidden = false; push("… what came before is left out", { task, stream: "note" }); }
      let skips = cut; // The first line is not whole.
      for (const [at, text] of pieces) {
        if (!rest) began = at;
        const parts = (rest + text).replaceAll("\r\n", "\n").split("\n");
        rest = parts.pop();
        for (const part of parts) {
          if (!skips) push(part, { task, stream, at: began });
          skips = false;
          began = at;
        }
      }
      return rests.set(key, { text: rest, at: began });
    },
    end() {
      for (const [key, { text, at }] of rests) {
        const [task, , stream] = JSON.parse(key);
        if (text) push(text, { task, stream, at });
      }
      rests.clear();
    },
  };
}
