"""DiLoCo in virtual time: the very machines, with hosts and files that die.

Weights are one array of few numbers, and computing takes as long as a worker is slow.
A file is gone when whoever made it is gone, unless somebody else fetched it before.
Contributions may be whatever a worker wants them to be.
"""

import heapq
import math
import zlib
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from random import Random

import msgspec
import numpy as np
from tests.sim.train_sharing import SimSharing

from shoal.train import tensors
from shoal.train.diloco import compression, events, outer, rounds
from shoal.train.diloco.averaging import Delta, average, norm_of
from shoal.train.diloco.member import (
    Compute,
    LeaveTraining,
    Member,
    Merge,
    Reload,
    ShareInner,
    StartOver,
    TakeInner,
    Validate,
)
from shoal.train.diloco.messages import (
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
    of_shares,
)
from shoal.train.diloco.rules import RoundRules
from shoal.train.diloco.shares import coordinator
from shoal.train.diloco.shares.messages import Duties

SIZE = 48
HEARTBEAT_S = 1.0
DRIFT = np.linspace(0.5, 1.0, SIZE, dtype=np.float32)  # No two weights are alike.
LAYOUT = tensors.Layout({"w": (SIZE,)})
NO_BUFFERS = np.zeros(0, dtype=np.float32)
Spoil = Callable[[compression.Array], compression.Array | None]


class World:
    """One job: an aggregator, workers, and a network that loses messages."""

    def __init__(self, seed: int, rules: RoundRules, loss: float = 0.0) -> None:
        self.now = 0.0
        self.rules = rules
        self.rng = Random(seed)
        self.loss = loss
        self.files: dict[str, dict[str, object]] = {}  # by who has them
        self.fetched: Counter[str] = Counter()  # files, by kind
        self.sent: Counter[str] = Counter()  # values of shares, by who has sent them
        self.workers: dict[str, SimWorker] = {}
        self.aggregator: SimAggregator | None = None
        self.closings: list[events.Average] = []
        self.reports: list[events.ReportMember] = []
        self.failure = ""
        self.astray = 0  # how often workers gave up what more than one had merged
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

    def put(self, who: str, content: object, data: bytes) -> str:
        """Keep content under a name that its bytes give it."""
        name = f"{zlib.crc32(data):08x}-{len(data)}"
        self.files.setdefault(who, {})[name] = content
        return name

    def find(self, name: str, kind: str) -> object | None:
        """Fetch a file from whoever has it."""
        for files in self.files.values():
            if name in files:
                self.fetched[kind] += 1
                return deepcopy(files[name])
        return None

    def life(self) -> int:
        self._lives += 1
        return self._lives

    def start_worker(
        self,
        name: str,
        speed: float = 10.0,
        *,
        link_s: float = 0.02,
        spoil: Spoil | None = None,
        samples: int | None = None,
    ) -> None:
        """Start a worker; a file takes `link_s` to it or from it.

        `spoil` changes its deltas, and returns None for a file that is none.
        """
        self.files.pop(name, None)
        self.workers[name] = worker = SimWorker(self, name, self.life(), speed)
        worker.link_s, worker.spoil, worker.samples = link_s, spoil, samples
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
        self.coordinator = coordinator.ShareCoordinator(self.machine, epoch)
        self.alive = True
        self.state: tensors.State | None = None
        self.directives: list[Directive] = []
        self.duties: list[Duties] = []
        self.inner: object | None = None

    def feed(self, event: coordinator.SharedEvent) -> None:
        if not self.alive:
            return
        for effect in self.coordinator.handle(event, self.world.now):
            self.perform(effect)
        due = self.coordinator.next_deadline()
        if due is not None:
            self.world.after(max(0.0, due - self.world.now), self._wake)

    def _wake(self) -> None:
        due = self.coordinator.next_deadline()
        if self.alive and due is not None and due <= self.world.now:
            self.feed(events.RoundDeadline())

    def perform(self, effect: coordinator.SharedEffect) -> None:
        world = self.world
        match effect:
            case coordinator.DirectOwner():
                self.duties.append(effect.duties)
                owner = world.workers.get(effect.worker)
                if owner is not None:
                    world.post(lambda: owner.sharing.hear(effect.duties))
            case coordinator.SaveState():
                world.after(0.1, lambda: self._save(effect))
            case coordinator.NoteClosed():
                world.closings.append(effect.order)
                world.far = max(world.far, effect.order.sync + 1)
            case coordinator.NoteBegun():
                pass
            case events.DirectMember():
                self.directives.append(effect.directive)
                worker = world.workers.get(effect.worker)
                if worker is not None:
                    world.post(lambda: worker.hear(effect.directive))
            case events.Fetch():
                found = world.workers.get(effect.worker)
                link_s = found.link_s if found else 0.05
                world.after(link_s, lambda: self._fetch(effect, link_s))
            case events.LoadState():
                world.after(0.1, lambda: self._load(effect))
            case events.Average():
                world.after(0.1, lambda: self._average(effect))
            case events.PublishState():
                world.after(0.1, lambda: self._publish(effect))
            case events.SaveInner():
                world.after(0.5, lambda: self._save_inner(effect))
            case events.ReportMember():
                world.reports.append(effect)
            case events.StopTraining():
                world.stopped_at = world.now
                world.failure = effect.failure

    def _save_inner(self, order: events.SaveInner) -> None:
        donor = self.world.workers.get(order.worker)
        if donor is not None and not donor.left:
            self.inner = self.world.find(order.kept.file, "inner")
        self.feed(events.InnerSaved())

    def _fetch(self, order: events.Fetch, link_s: float) -> None:
        contribution = order.contribution
        held = self.world.files.get(order.worker, {})
        if contribution.file not in held:
            self.feed(events.FetchFailed(order.worker, contribution))
            return
        delta = held[contribution.file]
        if self.alive:
            self.world.files.setdefault("aggregator", {})[contribution.file] = delta
        norm, fault = math.nan, "its file cannot be read"
        if isinstance(delta, np.ndarray):
            norm, fault = norm_of([delta], NO_BUFFERS), ""
        self.feed(events.Fetched(order.worker, contribution, norm, fault, link_s))

    def _save(self, order: coordinator.SaveState) -> None:
        found = self.world.files.get(order.worker, {}).get(order.kept.file)
        if not isinstance(found, tensors.State):
            self.feed(coordinator.StateUnsaved(order.worker))
            return
        self.state = deepcopy(found)
        self.feed(events.Published("checkpoint", self.state.syncs, order.kept.file))

    def _load(self, order: events.LoadState) -> None:
        if not order.worker and self.state is not None:
            self.feed(events.Loaded(self.state.syncs))
            return
        found = self.world.files.get(order.worker, {}).get(order.file)
        if found is None:
            self.feed(events.LoadFailed(order.worker))
            return
        fragments = self.world.rules.fragments
        if isinstance(found, tensors.State):
            state = deepcopy(found)
        else:
            assert isinstance(found, np.ndarray)
            state = tensors.begun(LAYOUT, found.copy(), order.syncs, fragments)
            if self.state is not None:
                state.momentum = self.state.momentum
        self.state = state
        self.feed(events.Loaded(state.syncs))

    def _publish(self, order: events.PublishState) -> None:
        if not self.alive:
            return
        state = self.state
        assert state is not None
        weights = state.weights.tobytes()
        content: object = state.weights.copy()
        if order.kind == "checkpoint" or self.machine.shares:
            weights += state.momentum.tobytes() + state.lost.tobytes()
            content = deepcopy(state)
        file = self.world.put("aggregator", content, weights)
        self.feed(events.Published(order.kind, state.syncs, file))

    def _average(self, order: events.Average) -> None:
        if not self.alive:
            return
        state, fragments = self.state, self.world.rules.fragments
        assert state is not None
        self.world.closings.append(order)
        part = LAYOUT.fragment(order.fragment, fragments)
        files = self.world.files["aggregator"]
        deltas: list[Delta] = []
        for each in order.parts:
            values = files[each.contribution.file]
            assert isinstance(values, np.ndarray)
            deltas.append(Delta(iter([values]), NO_BUFFERS, each.samples, each.scale))
        done = order.sync // fragments
        rule = outer.Outer()
        [data] = average(
            state, part, deltas, rule, rounds_done=done, encoding="float16"
        )
        state.syncs = order.sync + 1
        self.world.far = max(self.world.far, state.syncs)
        file = self.world.put("aggregator", data, data)
        check = tensors.check(state.weights, part)
        self.feed(
            events.Averaged(Update(order.sync, file, check, missing=order.missing))
        )


class SimWorker:
    """What `shoal.train.diloco.session` does, in virtual time."""

    def __init__(self, world: World, name: str, life: int, speed: float) -> None:
        self.world = world
        self.name = name
        self.speed = speed
        self.link_s = 0.02
        self.spoil: Spoil | None = None
        self.samples: int | None = None  # that it claims
        self.alive = True
        self.left = False
        self.busy_s = 0.0
        self.began_s = world.now
        self.shared = np.zeros(SIZE, dtype=np.float32)
        self.own = self.shared.copy()
        self.optimizer = 0  # steps: what the loop keeps
        self.snapshots: dict[int, compression.Array] = {}
        initial = world.put(name, self.shared.copy(), self.shared.tobytes())
        self.member = Member(
            name,
            life,
            initial,
            world.rules.fragments,
            checkpoint_syncs=world.rules.checkpoint_syncs,
            keeps_inner=True,
            values=SIZE,
        )
        self.sharing = SimSharing(self, life)
        self._computing: Compute | None = None
        self._computing_since_s = 0.0
        self._steps_since = 0  # the last contribution
        self._fetching = ""

    def begin(self) -> None:
        if self.alive and not self.left:
            self.tell()
            self.sharing.repeat()
            self.act()
            self.world.after(HEARTBEAT_S, self.begin)

    def tell(self) -> None:
        if not self.alive:
            return
        status = self.member.status()
        self.world.post(lambda: self._arrive(status))

    def _arrive(self, status: Status) -> None:
        if self.world.aggregator is not None:
            self.world.aggregator.feed(events.StatusReceived(status))

    def hear(self, directive: Directive) -> None:
        if self.alive and self.member.direct(directive):
            self.sharing.begin(directive.shares)
            self.sharing.note()
            self._keep()
            self.act()

    def _keep(self) -> None:
        if kept := self.member.to_keep:
            content = self.world.find(kept.file, "checkpoints")
            if content is not None:
                self.world.files.setdefault(self.name, {})[kept.file] = content
                self.member.keeps(KeptState(kept.syncs, kept.file))
        if self.member.is_asked_to_offer:
            data = self.shared.tobytes()
            content = self.sharing.whole() or self.shared.copy()
            file = self.world.put(self.name, content, data)
            self.member.offers(KeptState(self.member.merged, file))
            self.tell()

    def act(self) -> None:
        if not self.alive or self.left:
            return
        match self.member.next_action():
            case Reload() as order:
                found = self.world.find(order.file, "weights")
                if isinstance(found, np.ndarray):
                    found = tensors.begun(LAYOUT, found, order.syncs, 1)
                if isinstance(found, tensors.State):
                    self._reload(order.syncs, found)
                    self.act()
            case Merge() as order:
                self._fetch(order.update)
            case Validate() as order:
                self.member.has_validated(order.syncs, {"loss": 1.0})
                self.act()
            case TakeInner() as order:
                taken = self.world.find(order.kept.file, "inner")
                if isinstance(taken, int):
                    self.optimizer = taken
                    self.member.took_inner()
                    self.act()
            case ShareInner() as order:
                data = f"{self.name} {self.optimizer}".encode()
                file = self.world.put(self.name, self.optimizer, data)
                self.member.shares_inner(KeptState(order.syncs, file))
                self.tell()
                self.act()
            case StartOver():
                self.own = self.shared.copy()
                for sync in self.snapshots:
                    self.snapshots[sync] = self.shared[self._part(sync).trained].copy()
                self.member.has_started_over()
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

    def _reload(self, syncs: int, state: tensors.State) -> None:
        others = [w for w in self.world.workers.values() if w is not self]
        agreed = any(np.array_equal(w.shared, self.shared) for w in others)
        differs = bool((state.weights != self.shared).any())
        self.world.astray += syncs == self.member.merged > 0 and differs and agreed
        self.own += state.weights - self.shared
        self.shared = state.weights
        state.syncs = syncs
        self.sharing.replace(state)
        self.snapshots.clear()
        part = self._part(syncs - 1)
        check = tensors.check(self.shared, part, self.sharing.shares)
        self.member.has_reloaded(syncs, check)
        self.sharing.note()

    def _part(self, sync: int) -> tensors.Fragment:
        return LAYOUT.fragment(sync % self.rules.fragments, self.rules.fragments)

    @property
    def rules(self) -> RoundRules:
        return self.world.rules

    def _fetch(self, update: Update) -> None:
        if self._fetching == update.file:
            return
        self._fetching = update.file

        def done() -> None:
            self._fetching = ""
            files = update.shares or (update.file,)
            found = [self.world.find(each, "updates") for each in files]
            data = [each for each in found if isinstance(each, bytes)]
            if update.shares:
                self.sharing.judge(update, found)
            here = self.alive and len(data) == len(files)
            if here and self.member.merged == update.sync:
                self.sharing.count(update)
                self._merge(update, data)
            self.act()

        self.world.after(self.link_s, done)

    def _merge(self, update: Update, data: list[bytes]) -> None:
        if self._computing is not None and self._computing.segment <= update.sync:
            self._break_off()
        part = self._part(update.sync)
        place = part.trained
        before = self.snapshots.pop(update.sync, self.shared[place].copy())
        for each, share in zip(data, part.cut(len(data)), strict=True):
            own = share.trained
            add = compression.decode(each, "float16", own.stop - own.start)
            self.shared[own] += add
            self.sharing.follow(update, own, add)
        if tensors.check(self.shared, part, self.sharing.shares) != update.check:
            self.member.has_lost_its_way()
            self.sharing.note()
            self.tell()
            return
        self.sharing.settle(update)
        since = self.own[place] - before
        self.own[place] = self.shared[place] + np.where(np.isfinite(since), since, 0)
        self.member.has_merged(update)
        self.sharing.note()
        self.tell()

    def _compute(self, order: Compute) -> None:
        self._computing, self._computing_since_s = order, self.world.now
        spent_s = order.steps / self.speed

        def done() -> None:
            if not self.alive or self.left or self._computing is not order:
                return
            self._computing = None
            self._progress(order.steps, spent_s)
            if self.member.segment <= order.segment:
                self._contribute(order, spent_s)
            self.act()

        self.world.after(spent_s, done)

    def _break_off(self) -> None:
        """Leave a segment that is closed already; what was done counts for the next."""
        spent_s = self.world.now - self._computing_since_s
        self._computing = None
        self._progress(int(spent_s * self.speed), spent_s)

    def _progress(self, steps: int, spent_s: float) -> None:
        self.busy_s += spent_s
        self.own -= np.float32(0.01) * steps * (1 + self.own) * DRIFT
        self.optimizer += steps
        self._steps_since += steps

    def _contribute(self, order: Compute, spent_s: float) -> None:
        samples, self._steps_since = self._steps_since * 4, 0
        place = self._part(order.segment).trained
        self.snapshots[order.segment] = self.own[place].copy()
        delta: compression.Array | None = self.shared[place] - self.own[place]
        if self.spoil is not None and delta is not None:
            delta = self.spoil(delta)
        self.member.computed(order.segment)
        contribution = Contribution(
            order.segment,
            "",
            self.samples if self.samples is not None else samples,
            order.steps,
            spent_s,
            SIZE * 4,
            fetch_s=self.link_s,
        )
        self.member.contributed(self._put(contribution, delta))
        self.tell()

    def _put(
        self, contribution: Contribution, delta: compression.Array | None
    ) -> Contribution:
        """Keep the files of a contribution, one for each of its shares."""
        part = self._part(contribution.sync)
        start = part.trained.start
        files: list[str] = []
        for number, share in enumerate(part.cut(max(1, self.sharing.shares))):
            own = slice(share.trained.start - start, share.trained.stop - start)
            content: object = b"garbage" if delta is None else delta[own]
            # Equal deltas of two workers are no equal files here, but for an owner's.
            data = f"{self.name} {number} ".encode()
            data += b"" if delta is None else delta[own].tobytes()
            files.append(self.world.put(self.name, content, data))
        if self.sharing.shares:
            return of_shares(contribution, files)
        return msgspec.structs.replace(contribution, file=files[0])
