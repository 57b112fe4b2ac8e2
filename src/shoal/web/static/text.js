// Text of strangers: what a job, a node or a file is called, and what a task writes. It
// is only ever set as text, never as markup; and what steers a terminal, hides, or turns
// the direction of writing is shown as a mark of its own.

const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
const ALL_STEERING = new RegExp(STEERING.source, "g");
const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

// Colours and movements of terminals mean nothing here.
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;

// Return a text with a visible mark for each character that would not be seen.
export function visible(text) {
  return STEERING.test(text) ? text.replace(ALL_STEERING, mark) : text;
}

function mark(char) {
  const code = char.codePointAt(0);
  return code < 0x20 ? String.fromCodePoint(0x2400 + code) : "\ufffd";
}

export function withoutEscapes(text) {
  return text.includes("\x1b") ? text.replace(ESCAPES, "") : text;
}

// Return a word so that a shell takes it for one word, and a person sees all of it.
export function quoted(word) {
  if (PLAIN.test(word)) return word;
  if (!STEERING.test(word)) return `'${word.replaceAll("'", "'\\''")}'`;
  const escaped = word.replace(/[\\']/g, "\\$&").replaceAll("\n", "\\n").replaceAll("\t", "\\t");
  return `$'${escaped.replace(ALL_STEERING, escape)}'`;
}

function escape(char) {
  const code = char.codePointAt(0);
  return code < 0x80 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

export function commandLine(words) {
  return words.map(quoted).join(" ");
}
