// Which page is shown, and whether the node is there.

import { follow, forgetToken, keepToken, takeToken } from "./api.js";
import { command } from "./cli.js";
import { comparePage, idsOf } from "./compare.js";
import { clock, h, now, setClock, setText, tickAll } from "./dom.js";
import { jobPage } from "./job.js";
import { nodePage } from "./node.js";
import { nodesPage } from "./nodes.js";
import { overviewPage } from "./overview.js";
import { submitPage } from "./submit.js";

const TICK_MS = 1000;
const PATIENCE_MS = 1500; // A break that is mended sooner is not worth a word.
const view = document.getElementById("view");
const banner = document.getElementById("banner");
let leave = () => {};
let lostAt = null;
let warning = 0;

function say(state, text) {
  document.getElementById("live").dataset.state = state;
  setText(document.getElementById("live-text"), text);
}

export function notice(text, kind = "") {
  const element = h("div", { class: `notice ${kind}` }, text);
  document.getElementById("notices").append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 12000 : 5000);
}

export function failed(error) {
  const parts = [error.message, error.because, error.hint && `next: ${error.hint}`];
  notice(parts.filter(Boolean).join(" · "), "bad");
}

function about(info) {
  setText(document.getElementById("where"), `${info.petname} in “${info.shoal}”`);
  document.title = document.title.replace(/( · .*)?$/, ` · ${info.petname}`);
}

// The stream broke: what is shown may be old, until it is there again.

function lost(retry) {
  lostAt ??= now();
  say("lost", "the node does not answer");
  clearTimeout(warning);
  warning = setTimeout(() => {
    banner.replaceChildren(h("span", {}, `No news from the node since ${clock(lostAt)}: what you see may be old. Trying again…`), h("button", { type: "button", class: "mini", onclick: retry }, "try now"));
    banner.hidden = false;
    document.body.classList.add("stale");
  }, PATIENCE_MS);
}

function found() {
  lostAt = null;
  clearTimeout(warning);
  banner.hidden = true;
  document.body.classList.remove("stale");
  say("up", "live");
}

// Pages.

function watch(page, path) {
  const stop = follow(path, {
    open: (date) => { if (date) setClock(date); found(); page.reset?.(); },
    lost,
    refused: (error) => (error.status === 401 ? gate(error) : missing(error)),
    event: (name, document_) => {
      if (name === "info") about(document_);
      if (name === "error") failed({ message: document_.what, because: document_.because });
      page.on[name]?.(document_);
    },
  });
  return () => { stop(); page.leave?.(); };
}

const PAGES = [
  ["overview", /^\/$/, () => ({ page: overviewPage(), title: "shoal" })],
  ["submit", /^\/submit$/, () => ({ page: submitPage(), title: "submit" })],
  ["nodes", /^\/nodes$/, () => ({ page: nodesPage(), title: "nodes" })],
  ["nodes", /^\/nodes\/([A-Za-z0-9_-]+)$/, ([, id]) => ({ page: nodePage(id), title: "node" })],
  ["overview", /^\/compare$/, () => ({ page: comparePage(idsOf(location.search)), title: "compare" })],
  ["overview", /^\/jobs\/([A-Za-z0-9_-]+)$/, ([, id]) => jobOf(id)],
];

function jobOf(id, more = {}) {
  const task = new URLSearchParams(location.search).get("task") ?? "";
  const asked = new URLSearchParams({ job: id, ...(task ? { task } : {}), ...more });
  const restart = (wanted) => open({ ...jobOf(id, wanted), name: "overview" });
  return { page: jobPage(id, task, restart), title: `job ${id}`, path: `/api/stream?${asked}` };
}

function show() {
  for (const [name, pattern, make] of PAGES) {
    const match = pattern.exec(location.pathname);
    if (match) {
      open({ ...make(match), name });
      scrollTo(0, 0);
      return;
    }
  }
}

function open({ page, title, name, path = "/api/stream" }) {
  leave();
  document.title = title;
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.replaceChildren(page.element);
  leave = watch(page, path);
}

export function go(path) {
  history.pushState(null, "", path);
  show();
  view.focus({ preventScroll: true });
}

function gate(error) {
  leave();
  leave = () => {};
  say("lost", "no token");
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false" });
  const enter = (event) => {
    event.preventDefault();
    keepToken(field.value);
    show();
  };
  const wrong = /wrong/.test(error.because);
  if (wrong) forgetToken();
  view.replaceChildren(h("section", { class: "gate" },
    h("h1", {}, wrong ? "This token is not the node’s" : "Open this page with its token"),
    h("p", {}, "Whoever has the token of a node can run programs there, so this page asks for it once in each browser. On the machine of the node, this opens the page with it:"),
    h("p", {}, command("shoal web", "open the page")),
    h("form", { onsubmit: enter },
      h("label", { for: "token" }, "Or paste the token, or the address that the command prints"),
      h("div", { class: "row" }, field, h("button", { class: "act primary" }, "Open")))));
  field.focus();
}

function missing(error) {
  say("up", "live");
  view.replaceChildren(h("section", { class: "gate" },
    h("h1", {}, error.message),
    h("p", {}, error.because),
    h("p", {}, h("a", { href: "/" }, "All jobs"))));
}

// Links inside the page change it without loading it again; a whole row opens.
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target.closest?.("a[href^='/']");
  if (link?.hasAttribute("download")) return;
  if (link) {
    event.preventDefault();
    go(link.getAttribute("href"));
    return;
  }
  const row = event.target.closest?.("[data-href]");
  if (!row || event.target.closest("button, input, select, label, summary, a") || String(getSelection())) return;
  go(row.dataset.href);
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) event.target.blur();
  else if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  else if (event.key === "Enter" && event.target.matches?.("[role=link][data-href]")) go(event.target.dataset.href);
  else if (event.key === "Escape" && location.pathname !== "/") go("/");
  else if (event.key === "/") {
    const filter = document.querySelector("input[type=search]");
    if (filter) { event.preventDefault(); filter.focus(); }
  }
});
addEventListener("popstate", show);
addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#token=")) return;
  takeToken();
  show();
});
setInterval(() => { if (!document.hidden) tickAll(); }, TICK_MS);
takeToken();
show();
