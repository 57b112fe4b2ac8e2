"""Sessions at a terminal as text: what is typed, and what must appear.

    # A remark.
    a$ shoal submit train.yaml
    {job}
    job {job} (train) submitted · ...
    a$ cat > note.txt <<END
    > a line that the command goes on with
    > END
    b% shoal nodes
    ...
    a$ shoal wait {job}
    (exit 3)

The letter is the machine; each has a home, and a folder to work in. `%` types the same
again until it looks as shown. `...` is any text within a line, and any number of lines
as one; two spaces are two or more. `{job}` is a word: what it was the first time it
must be again, and commands can use it. A command exits with 0 unless the last line says
otherwise. One that ends with `&` goes on, unseen, until the session ends.

A shell runs each command, unless it is `shoal` with plain words: then a fork does, to
which nothing looks different.
"""

import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from tests.integration import forked_shoal
from tests.integration.cli_home import CliHome

TIMEOUT_S = 90.0
LOOK_S = 0.2
PROMPT = re.compile(r"([a-z])([$%]) (.+)")
REMARK = re.compile(r"# \S")  # A table may begin with #, and two spaces.
EXIT = re.compile(r"\(exit (\d+)\)")
PART = re.compile(r"(\.\.\.|\{\w+\})")
PLAIN = re.compile(r"""shoal(?: (?:[\w./:=,@%+-]|'[^']*'|"[^"$`\\]*")+)*""")
"""A command of words that a shell would only take out of their quotes."""


class Step(NamedTuple):
    """One command, and what it must lead to."""

    line: int
    machine: str
    again: bool
    command: str
    shown: tuple[str, ...]
    code: int


def parse(text: str) -> list[Step]:
    """Return the steps of a transcript."""
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if REMARK.match(line):
            continue
        if found := PROMPT.fullmatch(line):
            machine, sign, command = found.groups()
            steps.append(Step(number, machine, sign == "%", command, (), 0))
        elif line.startswith("> "):
            typed = f"{steps[-1].command}\n{line.removeprefix('> ')}"
            steps[-1] = steps[-1]._replace(command=typed)
        elif code := EXIT.fullmatch(line):
            steps[-1] = steps[-1]._replace(code=int(code[1]))
        elif line or (steps and steps[-1].shown):
            steps[-1] = steps[-1]._replace(shown=(*steps[-1].shown, line))
    return [step._replace(shown=_without_end(step.shown)) for step in steps]


def _without_end(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out empty lines before the next command."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def matched(
    shown: tuple[str, ...], printed: str, words: dict[str, str]
) -> dict[str, str] | None:
    """Return the words of an output that looks as shown; None if it does not."""
    pattern = "".join(_pattern(line, words) for line in shown)
    names = dict.fromkeys(re.findall(r"\(\?P<(\w+)>", pattern))
    for name in names:  # Only the first can be a group; the others repeat it.
        head, group, tail = pattern.partition(f"(?P<{name}>\\S+)")
        pattern = head + group + tail.replace(f"(?P<{name}>\\S+)", f"(?P={name})")
    text = printed if printed.endswith("\n") or not printed else printed + "\n"
    found = re.fullmatch(pattern, text)
    return None if found is None else {**words, **found.groupdict()}


def _pattern(line: str, words: dict[str, str]) -> str:
    if line == "...":
        return r"(?:.*\n)*?"
    parts = PART.split(line)
    return "".join(_part(part, words) for part in parts) + r"[ ]*\n"


def _part(part: str, words: dict[str, str]) -> str:
    if part == "...":
        return ".*?"
    if PART.fullmatch(part):
        name = part.strip("{}")
        return re.escape(words[name]) if name in words else rf"(?P<{name}>\S+)"
    return re.sub(r"(?:\\ ){2,}", " {2,}", re.escape(part))


class Session:
    """Types a transcript on machines that are homes below one folder."""

    def __init__(
        self, folder: Path, examples: Path, env: dict[str, str] | None = None
    ) -> None:
        """Make one; all commands see the variables in `env`."""
        self._env = env or {}
        self._folder = folder
        self._examples = examples
        self.machines: dict[str, CliHome] = {}
        self.words: dict[str, str] = {}
        self._unseen: list[subprocess.Popen[bytes]] = []

    def play(self, text: str) -> None:
        """Type every command; fail at the first that does not do as shown."""
        for step in parse(text):
            self._play(step)

    def _play(self, step: Step) -> None:
        until = time.monotonic() + TIMEOUT_S
        while True:
            code, printed = self._type(step)
            words = matched(step.shown, printed, self.words)
            if words is not None and code == step.code:
                self.words = words
                return
            if not step.again or time.monotonic() > until:
                break
            time.sleep(LOOK_S)
        shown = "\n".join(step.shown)
        raise AssertionError(
            f"line {step.line}: {step.command}\n--- shown, exit {step.code}\n{shown}\n"
            f"--- printed, exit {code}\n{printed}"
        )

    def _type(self, step: Step) -> tuple[int, str]:
        command = step.command
        for name, word in self.words.items():
            command = command.replace(f"{{{name}}}", word)
        home = self.machine(step.machine)
        work = self._folder / step.machine / "work"
        if command.endswith(" &"):
            shell = ["sh", "-c", f"exec {command.removesuffix(' &')}"]
            with (self._folder / f"{step.line}.log").open("wb") as log:
                self._unseen.append(
                    subprocess.Popen(
                        shell, stdout=log, stderr=log, cwd=work, env=home.env
                    )
                )
            return 0, ""
        # A file, because a node in the background keeps a pipe open.
        with (self._folder / "output").open("w+", encoding="utf-8") as output:
            code = _run(command, work, home.env, output.fileno())
            output.seek(0)
            return code, output.read()

    def machine(self, name: str) -> CliHome:
        """Return the home of a machine, as the session sees it."""
        if name not in self.machines:
            work = self._folder / name / "work"
            work.mkdir(parents=True)
            (work / "examples").symlink_to(self._examples)
            home = self.machines[name] = CliHome(self._folder / name / "home")
            home.env.update(self._env)
        return self.machines[name]

    def close(self) -> None:
        """End all that still runs."""
        for process in reversed(self._unseen):
            process.terminate()
            process.wait(TIMEOUT_S)
        for home in self.machines.values():
            home.close()


def _run(command: str, work: Path, env: dict[str, str], output: int) -> int:
    """Run a command to its end; return its exit code."""
    args = shlex.split(command)[1:] if PLAIN.fullmatch(command) else []
    with Path(os.devnull).open("rb") as nothing:
        if args and forked_shoal.can_fork(args, env):
            return forked_shoal.start(
                forked_shoal.COMMANDS, args, env, (nothing, output, output), cwd=work
            ).wait(TIMEOUT_S)
        return subprocess.run(
            ["sh", "-c", command],
            stdin=nothing,
            stdout=output,
            stderr=output,
            cwd=work,
            env=env,
            timeout=TIMEOUT_S,
            check=False,
        ).returncode
