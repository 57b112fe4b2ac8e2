"""A machine on a stage: commands go in as events, effects come out as lines.

Time passes only by `at SECONDS`, and then every deadline on the way is delivered, as
a host would. The effects of a deadline begin with its time.
"""

from collections.abc import Callable
from random import Random
from typing import Final, Protocol, final

import msgspec
from tests.fake_keys import ROOT, SHOAL, granted, verify
from tests.scenarios import commands, rendering
from tests.scenarios.commands import Line

from shoal.core import events
from shoal.core.discovery.gate import Gate, RelayLimits
from shoal.core.durability.journal import Entry
from shoal.core.environments.events import EnvironmentMade
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.leasing.worker import Worker
from shoal.core.lending.lend_rule import parse_lend
from shoal.core.membership.members import Members
from shoal.core.membership.membership import Membership
from shoal.core.membership.roster import Roster
from shoal.core.peer import Peer
from shoal.core.scheduling.scheduler import Scheduler
from shoal.model.ids import Attempt, EnvironmentId, JobId, NodeId, OwnerId, TaskId
from shoal.model.kinds import Strangers, TaskNetwork
from shoal.model.resources import GIB
from shoal.protocol import messages as m
from shoal.protocol.messages import Demand, Grant, PeerAddress

STEPS_MAX: Final = 10_000


class Machine(Protocol):
    """What all machines have in common."""

    def handle(self, event: events.Event, now: float) -> list[events.Effect]:
        """Take in one fact; return what to do about it."""
        ...

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        ...


@final
class Stage:
    """Plays the commands of one scenario."""

    def __init__(self) -> None:
        self._now = 0.0
        self._roster = Roster(Members(SHOAL, ROOT, verify), 0.0)
        self._grants: dict[NodeId, Grant] = {}
        self._machine: Machine | None = None
        self._worker: Worker | None = None
        self._scheduler: Scheduler | None = None
        self._gate: Gate | None = None
        self._is_peer = False
        self._journal: list[Entry] = []
        self._token = 0
        self._making: dict[Attempt, EnvironmentId] = {}
        self._asked: dict[NodeId, str] = {}  # the last demand sent to each worker
        self._setup: dict[str, Callable[[Line], list[str]]] = {
            "at": self._at,
            "member": self._member,
            "worker": self._on_worker,
            "scheduler": self._on_scheduler,
            "gate": self._on_gate,
            "node": self._on_node,
            "boots": lambda _: self._feed(events.Booted()),
            "restarts": self._restarts,
            "show": self._show,
        }

    def play(self, text: str) -> list[str]:
        """Do one command; return the lines that it brings about."""
        line = Line.cut(text)
        if setup := self._setup.get(line.words[0]):
            return setup(line)
        return self._feed(self._event(line))

    # Who is on stage.

    def _member(self, line: Line) -> list[str]:
        """Give a grant; only on a stage without a peer is it shown at once."""
        name = line.words[1]
        roles = line.options.get("roles", "scheduler,worker,gate").split(",")
        gpus, cpu = line.options.get("gpus"), line.options.get("cpus")
        grant = granted(
            name,
            roles=tuple(roles),
            owner=OwnerId(line.options.get("owner", name)),
            top_priority=line.count("priority", 50),
            quota_gpus=int(gpus) if gpus else None,
            quota_cpu_milli=int(cpu) * 1000 if cpu else None,
            expires_wall_s=line.number("expires", 1e9),
        )
        self._grants[grant.node] = grant
        if not self._is_peer:
            self._roster.meet(grant.node, grant, self._now)
        return []

    def _on_worker(self, line: Line) -> list[str]:
        owners, own = line.options.get("owners", ""), line.options.get("own", "")
        rules = OwnerRules(
            owners=tuple(OwnerId(o) for o in owners.split(",") if o),
            own=OwnerId(own),
            strangers=msgspec.convert(line.options.get("strangers", "any"), Strangers),
            task_network=msgspec.convert(
                line.options.get("task-network", "all"), TaskNetwork
            ),
            lent=commands.listed(line, "lent"),
            lend=parse_lend(line.options.get("lend", "always")),
        )
        self._worker = Worker(
            NodeId(line.words[1]),
            commands.capacity(line),
            self._roster,
            rules=rules,
            epoch=line.count("epoch", 1),
            rng=Random(1),
            environment_bytes=line.count("room", 50) * GIB,
        )
        self._machine = self._worker
        return [] if line.has("unbooted") else self._feed(events.Booted())

    def _on_scheduler(self, line: Line) -> list[str]:
        self._member(line)
        return self._new_scheduler(NodeId(line.words[1]))

    def _new_scheduler(self, node: NodeId) -> list[str]:
        self._scheduler = Scheduler(
            node,
            self._roster,
            journal=self._journal,
            grant=self._grants[node],
            rng=Random(1),
            now=self._now,
        )
        self._machine = self._scheduler
        return self._feed(events.Booted())

    def _restarts(self, line: Line) -> list[str]:
        """Begin a new life from the journal, without its last entries if so said."""
        assert self._scheduler is not None
        losing = line.count("losing", 0)
        del self._journal[len(self._journal) - losing :]
        return self._new_scheduler(self._scheduler.node)

    def _on_gate(self, line: Line) -> list[str]:
        most = line.count("reservations", 256)
        limits = RelayLimits(reservations_max=most, valid_for_s=60.0)
        self._gate = Gate(NodeId(line.words[1]), limits=limits, rng=Random(1))
        self._machine = self._gate
        return []

    def _on_node(self, line: Line) -> list[str]:
        """Put a node on stage, with the roles that it has a grant for."""
        self._is_peer = True
        self._member(line)
        node = NodeId(line.words[1])
        grant = self._grants[node]
        if "worker" in grant.roles:
            self._on_worker(Line.cut(f"{line.text} unbooted"))
        if "scheduler" in grant.roles:
            self._scheduler = Scheduler(
                node, self._roster, grant=grant, rng=Random(1), now=self._now
            )
        if "gate" in grant.roles:
            self._on_gate(line)
        machines = (self._worker, self._scheduler, self._gate)
        self._machine = Peer(
            Membership(node, self._roster, grant),
            [machine for machine in machines if machine is not None],
        )
        return self._feed(events.Booted())

    # What happens.

    def _at(self, line: Line) -> list[str]:
        """Let time pass, with every deadline on the way."""
        until = float(line.words[1])
        assert until >= self._now, f"{line.text}: it is {self._now} already"
        lines: list[str] = []
        for _ in range(STEPS_MAX):
            at = self._machine.next_deadline() if self._machine else None
            if at is None or at > until:
                break
            self._now = max(self._now, at)
            told = self._feed(events.DeadlineReached())
            lines += [f"{self._now:.3f} {one}" for one in told]
        else:
            raise AssertionError(f"{line.text}: deadlines without end")
        self._now = until
        return lines

    def _event(self, line: Line) -> events.Event:
        match line.words:
            case ("task", _, "made" | "failed" | "dropped"):
                return self._environment_made(line)
            case ("task", *_):
                return commands.task_event(line)
            case ("checkpoint" | "outputs" as what, *_):
                return commands.FETCHES[what](line)
            case ("owner" | "machine", *_):
                return commands.lending_event(line)
            case ("driver", "opens"):
                return commands.driver_opened(line)
            case ("drain", *how):
                return commands.drain_event(how)
            case ("shoal", "has", nodes):
                return events.SizeEstimated(int(nodes))
            case ("lookup", number, "finds", *found):
                named = tuple(PeerAddress(NodeId(node), ()) for node in found)
                return events.LookedUp(int(number), named)
            case ("client", "submits", *_):
                return self._submission(line)
            case ("client", "cancels", name):
                self._token += 1
                job, dot, _ = name.partition(".")
                task = TaskId(name) if dot else None
                return events.CancelRequested(self._token, JobId(job), task=task)
            case (peer, "connects", *_):
                grant = None if line.has("barely") else self._grants.get(NodeId(peer))
                return events.PeerConnected(NodeId(peer), grant)
            case (peer, "vanishes"):
                return events.PeerLost(NodeId(peer))
            case (peer, verb, "last", *_):
                # Its answer is to the last demand it got.
                text = line.text.replace(" last", f" {self._asked[NodeId(peer)]}", 1)
                return self._event(Line.cut(text))
            case (peer, verb, *_):
                message = commands.MESSAGES[verb](NodeId(peer), line)
                return events.MessageReceived(NodeId(peer), message)
            case _:
                raise AssertionError(f"nobody understands: {line.text}")

    def _environment_made(self, line: Line) -> EnvironmentMade:
        """Read what became of an environment: `task ATTEMPT made gib=2`."""
        run, how = commands.attempt(line.words[1]), line.words[2]
        failed = m.Outcome("exited", exit_code=1, reason="no such package")
        return EnvironmentMade(
            run,
            self._making[run],
            bytes=line.count("gib", 1) * GIB,
            took_s=2.0,
            failure=failed if how == "failed" else None,
            stopped=how == "dropped",
        )

    def _submission(self, line: Line) -> events.JobSubmitted:
        self._token += 1
        by = line.options.get("by")
        grant = self._grants[NodeId(by)] if by else None
        return events.JobSubmitted(self._token, commands.job(line), grant)

    def _feed(self, event: events.Event) -> list[str]:
        assert self._machine is not None, "nobody is on stage"
        effects = self._machine.handle(event, self._now)
        for effect in effects:
            if isinstance(effect, events.MakeEnvironment):
                self._making[effect.start.attempt] = effect.need.id
            if isinstance(effect, events.Send) and isinstance(effect.message, Demand):
                self._asked[effect.peer] = effect.message.request
        self._journal += [e.entry for e in effects if isinstance(e, events.Record)]
        lines = [rendering.effect_line(effect) for effect in effects]
        return [line for line in lines if line is not None]

    # What can be looked at.

    def _show(self, line: Line) -> list[str]:
        match line.words[1]:
            case "free":
                assert self._worker is not None
                idle = " idle" if self._worker.leases.ledger.idle else ""
                return [rendering.load(self._worker.load) + idle]
            case "reports":
                assert self._worker is not None
                return [f"{self._worker.unacknowledged} unacknowledged"]
            case "leases":
                return self._leases()
            case "jobs":
                return self._jobs()
            case "why":
                return self._why(TaskId(line.words[2]))
            case "reserved":
                assert self._gate is not None
                return [rendering.words(self._gate.reserved) or "nobody"]
            case what:
                raise AssertionError(f"nothing shows {what}")

    def _leases(self) -> list[str]:
        if self._scheduler is not None and not self._is_peer:
            held = self._scheduler.holdings
            used = [f"{w}: {len(held.all_at(w))}" for w in held._ties]
            return [rendering.words(used) or "none"]
        assert self._worker is not None
        leases = [
            f"{v.id} {v.state} of {v.peer}"
            + (f" runs {v.running}" if v.running else "")
            for v in self._worker.leases
        ]
        return leases or ["none"]

    def _why(self, task: TaskId) -> list[str]:
        """Show what a user is told of a task, and of nodes that cannot run it."""
        assert self._scheduler is not None
        found = self._scheduler.explain(task)
        assert found is not None
        where = f" on {rendering.words(found.workers)}" if found.workers else ""
        lines = [f"{task} {found.state}{where}", *(f"  {why}" for why in found.why)]
        lines += [f"  said {node}: {why}" for node, why in found.refused]
        if found.placement is not None:
            for each in found.placement.rejected:
                lines.append(f"  {each.node}: {each.reason}")
            lines += [f"  helps: {each}" for each in found.placement.helps]
        return lines

    def _jobs(self) -> list[str]:
        assert self._scheduler is not None
        book = self._scheduler.book
        lines: list[str] = []
        for record in book.jobs.values():
            lines.append(f"{record.job.id} {record.state}")
            for task in record.job.tasks():
                told = book.tasks[task.id]
                why = f": {told.reason}" if told.reason else ""
                lines.append(f"  {task.id} {told.state}{why}")
        return lines
