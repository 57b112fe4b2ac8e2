// What a job writes, as it writes it.

import { shortTask } from "./curves.js";
import { h } from "./dom.js";

const LINES_MAX = 4000;
const NEAR = 40; // Whoever is so near to the end wants to stay there.
// Colours and movements of terminals mean nothing here.
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;

export function outputPanel() {
  const box = h("div", { class: "output", role: "log", tabindex: "0", "aria-label": "Output" });
  const empty = h("p", { class: "empty" }, "It has written nothing yet.");
  const following = h("input", { type: "checkbox", checked: true });
  const wrapping = h("input", { type: "checkbox", checked: true });
  const rests = new Map();
  let waiting = [];
  let many = false;
  let asked = 0;

  following.addEventListener("change", () => { if (following.checked) box.scrollTop = box.scrollHeight; });
  wrapping.addEventListener("change", () => box.classList.toggle("flat", !wrapping.checked));
  box.addEventListener("wheel", () => requestAnimationFrame(noticeScroll), { passive: true });
  box.addEventListener("touchmove", () => requestAnimationFrame(noticeScroll), { passive: true });
  box.addEventListener("keyup", noticeScroll);

  function noticeScroll() {
    following.checked = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
  }

  function flush() {
    asked = 0;
    const lines = waiting.slice(-LINES_MAX);
    waiting = [];
    empty.hidden = empty.hidden || lines.length > 0;
    box.append(...lines.map(line));
    while (box.childElementCount > LINES_MAX) box.firstElementChild.remove();
    if (following.checked) box.scrollTop = box.scrollHeight;
  }

  function line({ task, stream, text }) {
    return h("div", { class: stream }, many ? h("span", { class: "who" }, shortTask(task)) : null, text);
  }

  function push(found) {
    waiting.push(found);
    if (waiting.length > 2 * LINES_MAX) waiting = waiting.slice(-LINES_MAX);
    asked ||= requestAnimationFrame(flush);
  }

  return {
    element: h("div", {}, h("div", { class: "box" }, empty, box)),
    tools: [h("label", { class: "tick" }, following, "follow"), h("label", { class: "tick" }, wrapping, "wrap")],
    setMany(found) { many = found; },
    reset() { rests.clear(); waiting = []; box.replaceChildren(); empty.hidden = false; },
    add({ task, stream, attempt, text, cut }) {
      const key = `${task}/${attempt}/${stream}`;
      const lines = ((rests.get(key) ?? "") + text).replaceAll("\r\n", "\n").split("\n");
      rests.set(key, lines.pop());
      if (cut) { lines.shift(); push({ task, stream: "note", text: "… what came before is left out: shoal logs has it" }); }
      for (const each of lines) push({ task, stream, text: each.split("\r").at(-1).replace(ESCAPES, "") });
    },
    end() {
      for (const [key, text] of rests) {
        const [task, , stream] = key.split("/");
        if (text) push({ task, stream, text: text.replace(ESCAPES, "") });
      }
      rests.clear();
    },
  };
}
