// The command line of everything that can be done here, to copy.

import { h, setText } from "./dom.js";

const SHOWN_MS = 1500;

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // Browsers allow it on loopback and behind TLS only.
  }
}

// A command with a button that copies it; `text` may be a function, for what changes.
export function command(text, about = "") {
  const current = () => (typeof text === "function" ? text() : text);
  const code = h("code", {}, current());
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy as CLI: ${about || "this command"}`, title: "Copy as CLI" }, "copy");
  button.addEventListener("click", async () => {
    const done = await copy(current());
    if (!done) getSelection().selectAllChildren(code);
    button.textContent = done ? "copied" : "press Ctrl-C";
    setTimeout(() => { button.textContent = "copy"; }, SHOWN_MS);
  });
  const element = h("span", { class: "cli" }, code, button);
  element.refresh = () => setText(code, current());
  return element;
}

// A button that does something, and the command that does the same.
export function action(label, text, run, { kind = "" } = {}) {
  const button = h("button", { type: "button", class: `act ${kind}` }, label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await run();
    } finally {
      button.disabled = false;
    }
  });
  return h("div", { class: "action" }, button, command(text, label));
}
