"""RLScheduler's batch queue, written anew from what its simulator does (SC 2020).

It shares no code with shoal: it reads the text of a trace by itself, gives out single
nodes, and goes from one event to the next. Two lists are sorted in place now and then,
and sorts are stable: so of equal jobs the first is whoever is first in its list.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2, log10

Key = Callable[["Entry", int], object]


@dataclass(eq=False)
class Entry:
    number: int
    submit: int
    run: int
    slots: int
    request: int
    start: int | None = None
    nodes: tuple[int, ...] = ()

    def ends(self) -> int:
        assert self.start is not None
        return self.start + self.run

    def should_end(self) -> int:
        assert self.start is not None
        return self.start + self.request


def cube(value: float) -> float:
    return value * value * value  # A power may be rounded otherwise.


KEYS: dict[str, Key] = {
    "fcfs": lambda job, _: job.submit,
    "sjf": lambda job, _: (job.request, job.submit),
    "f1": lambda job, _: (
        log10(job.request if job.request > 0 else 0.1) * job.slots
        + 870 * log10(job.submit if job.submit > 0 else 0.1)
    ),
    # Its simulator takes the wrong waiting time for these two; this is the right one.
    "wfp3": lambda job, now: -(cube((now - job.submit) / job.request)) * job.slots,
    "unicep": lambda job, now: (
        -(now - job.submit + 1e-15) / (log2(job.slots + 1e-15) * job.request)
    ),
}


def read(text: str) -> tuple[list[Entry], int, int]:
    """Return the jobs by their ids, and how many processors are on how many nodes."""
    jobs, told = list[Entry](), {"MaxProcs": 0, "MaxNodes": 0}
    for line in text.splitlines():
        if line.startswith(";"):
            name, _, value = line[1:].partition(":")
            if name.strip() in told:
                told[name.strip()] = int(value)
            continue
        words = [int(word) for word in line.split()]
        run, request = words[3], words[3] if words[8] == -1 else words[8]
        if run != 0:
            slots = max(words[4], words[7])
            jobs.append(
                Entry(words[0], words[1], run if run > 0 else 10, slots, request)
            )
    procs = told["MaxProcs"] or told["MaxNodes"]
    jobs.sort(key=lambda job: job.number)
    return jobs, procs, told["MaxNodes"] or procs


class PublishedQueue:
    """Serves a window of jobs, on a cluster that is idle at first."""

    def __init__(
        self, jobs: list[Entry], procs: int, nodes: int, *, backfill: bool
    ) -> None:
        self.coming = jobs.copy()
        self.waiting: list[Entry] = []
        self.running: list[Entry] = []
        self.per_node = procs / nodes
        self.idle = list(range(nodes))
        self.backfill = backfill
        self.now = jobs[0].submit

    def serve(self, key: Key) -> None:
        """Give every job its start."""
        self.step()
        while self.waiting:
            self.waiting.sort(key=lambda job: key(job, self.now))  # type: ignore[arg-type, return-value]
            picked = self.waiting[0]
            if not self.fits(picked):
                self.wait_for(picked)
            self.start(picked)
            while not self.waiting and self.coming:
                self.step()

    def wait_for(self, picked: Entry) -> None:
        promised = self.promise(picked) if self.backfill else None
        while not self.fits(picked):
            if promised is not None:
                self.waiting.sort(key=lambda job: job.submit)
                for job in self.waiting.copy():
                    if self.now + job.request < promised and self.fits(job):
                        self.start(job)
            self.step()

    def promise(self, picked: Entry) -> int:
        self.running.sort(key=Entry.should_end)
        free, at = len(self.idle) * self.per_node, self.now
        for job in self.running:
            free += len(job.nodes) * self.per_node
            at = job.should_end()
            if free >= picked.slots:
                break
        return at

    def step(self) -> None:
        """One job comes, or else one ends."""
        self.running.sort(key=Entry.ends)
        first = self.running[0].ends() if self.running else None
        if self.coming and (first is None or self.coming[0].submit <= first):
            job = self.coming.pop(0)
            self.now = max(self.now, job.submit)
            self.waiting.append(job)
        else:
            assert first is not None
            self.now = max(self.now, first)
            self.idle += self.running.pop(0).nodes

    def fits(self, job: Entry) -> bool:
        return ceil(job.slots / self.per_node) <= len(self.idle)

    def start(self, job: Entry) -> None:
        wanted = ceil(job.slots / self.per_node)
        job.start, job.nodes = self.now, tuple(self.idle[:wanted])
        del self.idle[:wanted]
        self.waiting.remove(job)
        self.running.append(job)
