// Files that tasks have left: a list, and buttons that download one or all of them.

import { ask, order } from "./api.js";
import { command } from "./cli.js";
import { bytes, count, h, rebuild, soon } from "./dom.js";
import { shortTask } from "./curves.js";
import { failed } from "./main.js";
import { quoted } from "./text.js";

const TASKS_OPEN_MAX = 3;
const LOOK_MS = 2000;

// A link carries no token, so the node gives a ticket for one download.
export async function download(what) {
  try {
    const { url } = await order("/api/downloads", what);
    const link = h("a", { href: url, download: "" });
    document.body.append(link);
    link.click();
    link.remove();
  } catch (error) {
    failed(error);
  }
}

export function outputsPanel(id, task, section) {
  const body = h("div", { class: "files" });
  let last = "";

  async function load() {
    try {
      show(await ask(`/api/jobs/${id}/outputs${task ? `?task=${encodeURIComponent(task)}` : ""}`));
    } catch (error) {
      rebuild(body, h("p", { class: "empty" }, error.message));
      section().hidden = error.status === 404;
    }
  }

  function show({ tasks }) {
    section().hidden = tasks.length === 0;
    const total = tasks.reduce((sum, each) => sum + each.bytes, 0);
    const files = tasks.reduce((sum, each) => sum + each.count, 0);
    rebuild(body,
      h("div", { class: "actions" },
        h("div", { class: "action" },
          h("button", { type: "button", class: "act", onclick: () => download({ job: id, task }) }, `Download all (${count(files, "file")}, ${bytes(total)})`),
          command(`shoal pull ${id}${task ? ` --task ${quoted(task)}` : ""}`, "download the outputs"))),
      tasks.map((each, place) => group(each, place < TASKS_OPEN_MAX)));
  }

  function group(each, open) {
    const head = h("summary", {}, h("span", { class: "id" }, shortTask(each.task)), h("span", { class: "soft" }, `${count(each.count, "file")}, ${bytes(each.bytes)}${each.checkpoint ? ", its latest checkpoint" : ""}`));
    const rest = each.count - each.files.length;
    return h("details", { open, class: "more" }, head, h("ul", { class: "list" }, each.files.map((file) => h("li", {},
      h("button", { type: "button", class: "plain file", "aria-label": `Download ${file.path}`, onclick: () => download({ job: id, task: each.task, path: file.path }) }, file.path),
      h("span", { class: "soft" }, bytes(file.bytes)))),
    rest > 0 ? h("li", { class: "soft" }, `and ${rest} more: download all of them`) : null));
  }

  const loadSoon = soon(load, LOOK_MS);
  return {
    element: body,
    look(job) {
      const told = `${job.state}/${job.tasks.done}/${job.tasks.failed}`;
      if (told === last) return;
      const isFirst = !last;
      last = told;
      if (isFirst) load();
      else loadSoon();
    },
  };
}
