// Talking to the node: its token, answers, and the stream of what happens.

const KEY = "shoal-token";
const PAUSE_FIRST_MS = 1000;
const PAUSE_MAX_MS = 10000;
const SILENT_MS = 40000; // The node says something every 15 s; longer, and it is gone.
const HIDDEN_MS = 15000; // A tab that nobody sees lets go of its stream after this.

export class Refused extends Error {
  constructor(status, told) {
    super(told.what);
    this.status = status;
    this.because = told.because ?? "";
    this.hint = told.hint ?? "";
  }
}

// `shoal web` opens the page with the token behind a #, which no server ever sees.
export function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  localStorage.setItem(KEY, found);
  history.replaceState(null, "", location.pathname + location.search);
}

export function keepToken(token) {
  localStorage.setItem(KEY, token.trim().replace(/^.*#token=/, ""));
}

export function forgetToken() {
  localStorage.removeItem(KEY);
}

async function call(path, options = {}) {
  const token = localStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, told.error ?? { what: `the node answered ${answer.status}` });
}

export async function ask(path) {
  return (await call(path)).json();
}

export async function order(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await call(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

// Short, and for a while nobody else's; it does not begin with a digit.
export function newJobId() {
  const letters = "abcdefghjkmnpqrstvwxyz";
  const drawn = crypto.getRandomValues(new Uint32Array(6));
  return [...drawn].map((n, place) => (place ? letters + "23456789" : letters)).map((from, place) => from[drawn[place] % from.length]).join("");
}

async function read(path, signal, on) {
  const answer = await call(path, { signal, headers: { Accept: "text/event-stream" } });
  on.open?.(Date.parse(answer.headers.get("Date")));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await inTime(reader.read(), on.silent);
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const name = /^event: (.+)$/m.exec(part)?.[1];
      const data = /^data: (.+)$/m.exec(part)?.[1];
      if (name && data) on.event(name, JSON.parse(data));
    }
  }
}

// A link that broke without a word, as when a machine slept, would be waited for for ever.
async function inTime(reading, silent) {
  let timer = 0;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("the node fell silent")), SILENT_MS); });
  try {
    return await Promise.race([reading, late]);
  } catch (error) {
    silent();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

// Follow a stream until told to stop; after a break it is opened anew, from the start.
export function follow(path, on) {
  let control = null;
  let stopped = false;
  let hiding = 0;
  let pause = PAUSE_FIRST_MS;
  let wake = () => {};

  const looked = () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => control?.abort(), HIDDEN_MS);
    else wake();
  };
  document.addEventListener("visibilitychange", looked);

  const wakeNow = () => wake();
  const sleep = (ms) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => { clearTimeout(timer); resolve(); };
  });

  (async () => {
    while (!stopped) {
      control = new AbortController();
      try {
        await read(path, control.signal, {
          open: (date) => { pause = PAUSE_FIRST_MS; on.open?.(date); },
          silent: () => control.abort(),
          event: on.event,
        });
      } catch (error) {
        if (stopped) return;
        if (error instanceof Refused && [401, 403, 404].includes(error.status)) {
          on.refused?.(error);
          return;
        }
        if (error.name !== "AbortError") console.warn(error);
      }
      if (stopped) return;
      on.lost?.(wakeNow);
      await sleep(document.hidden ? 2 ** 30 : pause);
      pause = Math.min(PAUSE_MAX_MS, 2 * pause);
    }
  })();

  return () => {
    stopped = true;
    clearTimeout(hiding);
    document.removeEventListener("visibilitychange", looked);
    wake();
    control?.abort();
  };
}
