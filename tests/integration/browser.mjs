// A browser that is told what to do: node browser.mjs CHROMIUM ADDRESS, steps on stdin.
//
// A step is a line of JSON: {"go": URL}, {"until": EXPRESSION}, {"do": EXPRESSION}. What
// the expressions come to is printed, one line of JSON for each, and at last all that
// the page complained of.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const PATIENCE_MS = 30000;
const LOOK_MS = 50;
const [chromium, profile] = [process.argv[2], mkdtempSync(join(tmpdir(), "shoal-browser-"))];
const browser = spawn(chromium, ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });

async function debuggerAddress() {
  for await (const line of createInterface({ input: browser.stderr })) {
    const found = /listening on ws:\/\/([^/]+)\//.exec(line);
    if (found) return found[1];
  }
  throw new Error("the browser did not start");
}

process.on("exit", () => browser.kill("SIGKILL")); // Whatever goes wrong.

const pages = await (await fetch(`http://${await debuggerAddress()}/json/list`)).json();
const socket = new WebSocket(pages.find((page) => page.type === "page").webSocketDebuggerUrl);
await new Promise((resolve) => socket.addEventListener("open", resolve));
browser.stderr.resume();

const waiting = new Map();
const complaints = [];
let number = 0;
socket.addEventListener("message", ({ data }) => {
  const said = JSON.parse(data);
  if (said.id) waiting.get(said.id)(said);
  else if (said.method === "Runtime.exceptionThrown") complaints.push(said.params.exceptionDetails.exception?.description ?? said.params.exceptionDetails.text);
  else if (said.method === "Log.entryAdded" && said.params.entry.level === "error") complaints.push(`${said.params.entry.text} ${said.params.entry.url ?? ""}`);
});

function call(method, params = {}) {
  number += 1;
  socket.send(JSON.stringify({ id: number, method, params }));
  return new Promise((resolve) => waiting.set(number, resolve));
}

async function value(expression) {
  const { result } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (result.exceptionDetails) throw new Error(result.exceptionDetails.exception?.description ?? result.exceptionDetails.text);
  return result.result.value;
}

async function until(expression) {
  const limit = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await value(expression).catch(() => null);
    if (found) return found;
    if (Date.now() > limit) throw new Error(`not in time: ${expression}\n${await value("document.body.innerText")}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

try {
  await call("Page.enable");
  await call("Runtime.enable");
  await call("Log.enable");
  for await (const line of createInterface({ input: process.stdin })) {
    const step = JSON.parse(line);
    if (step.go) await call("Page.navigate", { url: step.go });
    const answer = step.until ? await until(step.until) : step.do ? await value(step.do) : null;
    console.log(JSON.stringify(answer ?? null));
  }
  console.log(JSON.stringify(complaints));
} finally {
  browser.kill("SIGKILL");
  await new Promise((resolve) => browser.on("exit", resolve));
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
process.exit(0);
