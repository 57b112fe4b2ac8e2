"""DiLoCo in virtual time: the very machines, with hosts and files that die.

Weights are one array of few numbers, and computing takes as long as a worker is slow.
A file is gone when whoever made it is gone, unless somebody else fetched it before.
"""

import heapq
import zlib
from collections.abc import Callable
from random import Random

import numpy as np

from shoal.train import tensors
from shoal.train.diloco import compression, outer, rounds
from shoal.train.diloco.member import (
    Compute,
    LeaveTraining,
    Member,
    Merge,
    Reload,
    Validate,
)
from shoal.train.diloco.messages import (
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
)

SIZE = 12
HEARTBEAT_S = 1.0
LAYOUT = tensors.Layout({"w": (SIZE,)})


class World:
    """One job: an aggregator, workers, and a network that loses messages."""

    def __init__(self, seed: int, rules: rounds.RoundRules, loss: float = 0.0) -> None:
        self.now = 0.0
        self.rules = rules
        self.rng = Random(seed)
        self.loss = loss
        self.files: dict[str, dict[str, bytes]] = {}  # by who has them
        self.workers: dict[str, SimWorker] = {}
        self.aggregator: SimAggregator | None = None
        self.closings: list[rounds.Average] = []
        self.stopped_at: float | None = None
        self.far = 0  # syncs closed at the most, whoever aggregated
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._lives = 0

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._agenda, (self.now + delay_s, self._planned, act))

    def run(self, until_s: float) -> None:
        while self._agenda and self._agenda[0][0] <= until_s:
            self.now, _, act = heapq.heappop(self._agenda)
            act()
        self.now = until_s

    def post(self, deliver: Callable[[], None]) -> None:
        """Deliver a message: late, twice or never."""
        for _ in range(2 if self.rng.random() < self.loss else 1):
            if self.rng.random() >= self.loss:
                self.after(0.01 + self.rng.random() * 0.1, deliver)

    def put(self, who: str, data: bytes) -> str:
        name = f"{zlib.crc32(data):08x}-{len(data)}"
        self.files.setdefault(who, {})[name] = data
        return name

    def life(self) -> int:
        self._lives += 1
        return self._lives

    def start_worker(self, name: str, speed: float = 10.0) -> None:
        self.files.pop(name, None)
        self.workers[name] = worker = SimWorker(self, name, self.life(), speed)
        worker.begin()

    def kill_worker(self, name: str) -> None:
        self.workers.pop(name).alive = False
        self.files.pop(name, None)

    def start_aggregator(self) -> None:
        self.files.pop("aggregator", None)
        self.aggregator = SimAggregator(self, self.life())

    def kill_aggregator(self) -> None:
        assert self.aggregator is not None
        self.aggregator.alive = False
        self.aggregator = None
        self.files.pop("aggregator", None)


class SimAggregator:
    """What `shoal.train.diloco.aggregator` does, in virtual time."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world = world
        self.machine = rounds.Rounds(world.rules, epoch)
        self.alive = True
        self.state: tensors.State | None = None
        self.directives: list[Directive] = []

    def feed(self, event: rounds.Event) -> None:
        if not self.alive:
            return
        for effect in self.machine.handle(event, self.world.now):
            self.perform(effect)
        due = self.machine.next_deadline()
        if due is not None:
            self.world.after(max(0.0, due - self.world.now), self._wake)

    def _wake(self) -> None:
        due = self.machine.next_deadline()
        if self.alive and due is not None and due <= self.world.now:
            self.feed(rounds.RoundDeadline())

    def perform(self, effect: rounds.Effect) -> None:
        world = self.world
        match effect:
            case rounds.DirectMember():
                self.directives.append(effect.directive)
                worker = world.workers.get(effect.worker)
                if worker is not None:
                    world.post(lambda: worker.hear(effect.directive))
            case rounds.Fetch():
                world.after(0.05, lambda: self._fetch(effect))
            case rounds.LoadState():
                world.after(0.1, lambda: self._load(effect))
            case rounds.Average():
                world.after(0.1, lambda: self._average(effect))
            case rounds.StopTraining():
                world.stopped_at = world.now

    def _fetch(self, order: rounds.Fetch) -> None:
        data = self.world.files.get(order.worker, {}).get(order.contribution.file)
        if data is None:
            self.feed(rounds.FetchFailed(order.worker, order.contribution))
            return
        if self.alive:
            self.world.put("aggregator", data)
        self.feed(rounds.Fetched(order.worker, order.contribution))

    def _load(self, order: rounds.LoadState) -> None:
        data = self.world.files.get(order.worker, {}).get(order.file)
        if data is None:
            self.feed(rounds.LoadFailed(order.worker))
            return
        if order.kind == "checkpoint":
            self.state = tensors.unpack_state(data)
        else:
            _, flat = tensors.unpack_weights(data)
            zero = np.zeros_like(flat)
            self.state = tensors.State(order.syncs, LAYOUT, flat, zero, zero.copy())
        self.feed(rounds.Loaded(self.state.syncs, *self._files()))

    def _files(self) -> tuple[str, str]:
        assert self.state is not None
        weights = tensors.pack_weights(LAYOUT, self.state.weights)
        checkpoint = tensors.pack_state(self.state)
        put = self.world.put
        return put("aggregator", weights), put("aggregator", checkpoint)

    def _average(self, order: rounds.Average) -> None:
        if not self.alive:
            return
        assert self.state is not None
        self.world.closings.append(order)
        part = LAYOUT.fragment(order.fragment, self.world.rules.fragments)
        size = part.stop - part.start
        files = self.world.files["aggregator"]
        parts = [
            (tensors.unpack_fragment(files[c.file], size), c.samples)
            for _, c in order.parts
        ]
        mean = outer.weighted_mean(parts)
        add, momentum = outer.step(
            outer.Outer(),
            mean,
            self.state.momentum[part],
            rounds_done=order.sync // self.world.rules.fragments,
            workers=outer.equal_workers([samples for _, samples in parts]),
        )
        data, read, lost = compression.with_feedback(
            add, self.state.lost[part], "float16"
        )
        self.state.momentum[part], self.state.lost[part] = momentum, lost
        self.state.weights[part] += read
        self.state.syncs = order.sync + 1
        self.world.far = max(self.world.far, self.state.syncs)
        file = self.world.put("aggregator", tensors.pack_fragment(data, "float16"))
        check = tensors.check(self.state.weights[part])
        self.feed(rounds.Averaged(Update(order.sync, file, check), *self._files()))


class SimWorker:
    """What `shoal.train.diloco.session` does, in virtual time."""

    def __init__(self, world: World, name: str, life: int, speed: float) -> None:
        self.world = world
        self.name = name
        self.speed = speed
        self.alive = True
        self.left = False
        self.busy_s = 0.0
        self.began_s = world.now
        self.shared = np.zeros(SIZE, dtype=np.float32)
        self.own = self.shared.copy()
        self.snapshots: dict[int, compression.Array] = {}
        initial = world.put(name, tensors.pack_weights(LAYOUT, self.shared))
        self.member = Member(name, life, initial, world.rules.fragments)
        self._computing: int | None = None
        self._fetching = False

    def begin(self) -> None:
        if self.alive and not self.left:
            self.tell()
            self.world.after(HEARTBEAT_S, self.begin)

    def tell(self) -> None:
        if not self.alive:
            return
        status = self.member.status()
        self.world.post(lambda: self._arrive(status))

    def _arrive(self, status: Status) -> None:
        if self.world.aggregator is not None:
            self.world.aggregator.feed(rounds.StatusReceived(status))

    def hear(self, directive: Directive) -> None:
        if self.alive and self.member.direct(directive):
            self.act()

    def _file(self, name: str) -> bytes | None:
        return self.world.files.get("aggregator", {}).get(name)

    def act(self) -> None:
        if not self.alive or self.left:
            return
        if (kept := self.member.to_keep) and (data := self._file(kept.file)):
            self.world.put(self.name, data)
            self.member.keeps(KeptState(kept.syncs, kept.file))
        if self.member.is_asked_to_offer:
            file = self.world.put(self.name, tensors.pack_weights(LAYOUT, self.shared))
            self.member.offers(KeptState(self.member.merged, file))
            self.tell()
        match self.member.next_action():
            case Reload() as order:
                if data := self._file(order.file):
                    self._reload(order.syncs, data)
                    self.act()
            case Merge() as order:
                if data := self._file(order.update.file):
                    self._merge(order.update, data)
                    self.act()
            case Validate() as order:
                self.member.has_validated(order.syncs, {"loss": 1.0})
                self.act()
            case Compute() as order:
                if self._computing is None:
                    self._compute(order)
            case LeaveTraining():
                self.left = True
                self.member.leaves()
                self._say_goodbye(20)
            case _:
                pass

    def _say_goodbye(self, times: int) -> None:
        if times and self.alive:
            self.tell()
            self.world.after(HEARTBEAT_S, lambda: self._say_goodbye(times - 1))

    def _reload(self, syncs: int, data: bytes) -> None:
        before = self.shared.copy()
        _, self.shared = tensors.unpack_weights(data)
        self.own += self.shared - before
        self.snapshots.clear()
        part = self._part(syncs - 1)
        self.member.has_reloaded(syncs, tensors.check(self.shared[part]))

    def _part(self, sync: int) -> slice:
        return LAYOUT.fragment(sync % self.world.rules.fragments, self.rules.fragments)

    @property
    def rules(self) -> rounds.RoundRules:
        return self.world.rules

    def _merge(self, update: Update, data: bytes) -> None:
        part = self._part(update.sync)
        before = self.snapshots.pop(update.sync, self.shared[part].copy())
        self.shared[part] += tensors.unpack_fragment(data, part.stop - part.start)
        assert tensors.check(self.shared[part]) == update.check
        self.own[part] = self.shared[part] + (self.own[part] - before)
        self.member.has_merged(update)

    def _compute(self, order: Compute) -> None:
        self._computing = order.segment
        spent_s = order.steps / self.speed

        def done() -> None:
            if not self.alive or self.left:
                return
            self._computing = None
            self.busy_s += spent_s
            if self.member.segment <= order.segment:
                self._contribute(order, spent_s)
            self.act()

        self.world.after(spent_s, done)

    def _contribute(self, order: Compute, spent_s: float) -> None:
        self.own -= np.float32(0.01) * order.steps * (1 + self.own)
        part = self._part(order.segment)
        self.snapshots[order.segment] = self.own[part].copy()
        delta = self.shared[part] - self.own[part]
        data = compression.encode(delta, "float32")
        packed = tensors.pack_fragment(data, "float32")
        file = self.world.put(self.name, packed)
        self.member.computed(order.segment)
        self.member.contributed(
            Contribution(
                order.segment, file, order.steps * 4, order.steps, spent_s, len(packed)
            )
        )
        self.tell()
