// Which page is shown, and whether the node is there.

import { follow, forgetToken, keepToken, takeToken } from "./api.js";
import { command } from "./cli.js";
import { h, setText } from "./dom.js";
import { jobPage } from "./job.js";
import { overviewPage } from "./overview.js";
import { submitPage } from "./submit.js";

const view = document.getElementById("view");
let leave = () => {};

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

// Pages.

function watch(page, path) {
  const stop = follow(path, {
    open: () => { say("up", "live"); page.reset?.(); },
    lost: () => say("lost", "the node does not answer"),
    refused: (error) => (error.status === 401 ? gate(error) : missing(error)),
    event: (name, document_) => {
      if (name === "info") about(document_);
      page.on[name]?.(document_);
    },
  });
  return () => { stop(); page.leave?.(); };
}

function show() {
  leave();
  const found = /^\/jobs\/([A-Za-z0-9_-]+)$/.exec(location.pathname);
  const name = found ? "job" : location.pathname === "/submit" ? "submit" : "overview";
  const page = found ? jobPage(found[1]) : name === "submit" ? submitPage() : overviewPage();
  document.title = found ? `job ${found[1]}` : name === "submit" ? "submit" : "shoal";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.replaceChildren(page.element);
  const task = new URLSearchParams(location.search).get("task");
  leave = watch(page, found ? `/api/stream?job=${found[1]}${task ? `&task=${encodeURIComponent(task)}` : ""}` : "/api/stream");
  scrollTo(0, 0);
}

export function go(path) {
  history.pushState(null, "", path);
  show();
  view.focus({ preventScroll: true });
}

function gate(error) {
  leave();
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

// Links inside the page change it without loading it again.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) event.target.blur();
  else if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
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
takeToken();
show();
